"""The interface of token embeddings for re-ranking, over one or two segments."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.token_embeddings.codes import CodedStates
from glow.index.token_embeddings.format import StatesHeader

__all__ = ["StatesView", "StoredStates"]


class StatesView(Protocol):
    """Token embeddings for re-ranking; `TokenEmbeddingStore` describes each method. Rows are those of vectors."""

    @property
    def header(self) -> StatesHeader: ...  # noqa: D102 - see the class
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...  # noqa: D102
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...  # noqa: D102


class StoredStates(StatesView, Protocol):
    """The token embeddings of one segment, for joining and merging; `TokenEmbeddingStore` describes each method."""

    def coded(self, rows: NDArray[np.int64]) -> CodedStates: ...  # noqa: D102 - see the class
    def require_like(self, other: StatesHeader) -> None: ...  # noqa: D102
