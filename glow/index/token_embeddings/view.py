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
    def header(self) -> StatesHeader: ...
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...


class StoredStates(StatesView, Protocol):
    """The token embeddings of one segment, for joining and merging; `TokenEmbeddingStore` describes each method."""

    def coded(self, rows: NDArray[np.int64]) -> CodedStates: ...
    def require_like(self, other: StatesHeader) -> None: ...
