"""The interface of token embeddings for searches, over one or two segments."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.late_interaction.codes import CodedTokens
from glow.index.late_interaction.format import LateHeader

__all__ = ["LateView", "StoredLate"]


class LateView(Protocol):
    """Token embeddings for searches; `LateTokens` describes each method. Rows are those of vectors."""

    @property
    def header(self) -> LateHeader: ...
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    def places(self, row: int) -> NDArray[np.uint16]: ...


class StoredLate(LateView, Protocol):
    """The token embeddings of one segment, for joining and merging; `LateTokens` describes each method."""

    def coded(self, rows: NDArray[np.int64]) -> CodedTokens: ...
    def require_like(self, other: LateHeader) -> None: ...
