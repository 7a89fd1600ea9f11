"""The vectors of segments as one array of which blocks are read, and nothing else is held or written.

n   vectors     D   dimensions
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.delta.merge import SegmentSlice

__all__ = ["SegmentVectors"]


class SegmentVectors:
    """What stays of segments, one after another; a `VectorRows`.

    Args:
        segments: one at least.
        dimensions: D.

    Attributes:
        shape: (n, D).
    """

    def __init__(self, segments: Sequence[SegmentSlice], dimensions: int) -> None:
        self._parts = [(kept.vectors, kept.vector_rows) for kept in segments]
        self._starts = np.cumsum([0, *(len(rows) for _, rows in self._parts)])
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
