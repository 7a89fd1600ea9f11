"""The interface of vectors for searches, over one or two segments (`glow.index.segment`)."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.row_mask import RowMask
from glow.index.vector_search import IndexKind, SearchParams

__all__ = ["DenseView"]


class DenseView(Protocol):
    """Vectors for searches; `DenseIndex` describes each method."""

    @property
    def kind(self) -> IndexKind: ...
    @property
    def device(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def has_vectors(self) -> bool: ...
    @property
    def is_remote(self) -> bool: ...
    def __len__(self) -> int: ...
    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
