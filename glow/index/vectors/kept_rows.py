"""The live vectors of several segments as one array that is read in blocks, without a copy in memory or on disk.

n   vectors     D   dimensions
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.vector_search import VectorReader

__all__ = ["KeptVectors"]


class KeptVectors:
    """Vectors of segments, one segment after another; a `VectorRows`.

    Args:
        parts: for each segment, a reader of its vectors, and the live rows, int64, ascending.
        dimensions: D.

    Attributes:
        shape: (n, D).
    """

    def __init__(self, parts: Sequence[tuple[VectorReader, NDArray[np.int64]]], dimensions: int) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(rows) for _, rows in parts)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, wanted: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        if isinstance(wanted, slice):
            wanted = np.arange(*wanted.indices(len(self)))
        flat = wanted.reshape(-1)
        vectors = np.empty((len(flat), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts, flat, "right") - 1
        for owner, (read, rows) in enumerate(self._parts):
            mine = np.flatnonzero(owners == owner)
            if len(mine):
                vectors[mine] = read(rows[flat[mine] - self._starts[owner]])
        return vectors.reshape(*wanted.shape, self.shape[1])
