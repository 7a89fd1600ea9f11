"""Vectors in files, which are read block by block."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["VectorFiles"]


class VectorFiles:
    """The vectors of several files as one array [n, D]; blocks are read on demand and not kept. Can be pickled.

    Args:
        paths: paths of the files, in order; plain float32, little-endian.
        rows: number of vectors in each.
        dimensions: D.

    Attributes:
        shape: (n, D).
    """

    def __init__(self, paths: Sequence[Path], rows: Sequence[int], dimensions: int) -> None:
        self._paths = [path.absolute() for path in paths]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, wanted: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads rows.

        Args:
            wanted: a slice without step, or row numbers, int64 of any shape.

        Returns:
            float32 [m, D], or [..., D].
        """
        if isinstance(wanted, slice):
            start, stop, _ = wanted.indices(len(self))
            return self._read(np.arange(start, stop))
        flat = wanted.reshape(-1)
        rows, places = np.unique(flat, return_inverse=True)
        rows_read: NDArray[np.float32] = self._read(rows)[places.reshape(-1)]
        return rows_read.reshape(*wanted.shape, self.shape[1])

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads ascending rows; reads each file once, from the first to the last wanted row."""
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts, rows, "right") - 1
        edges = np.flatnonzero(np.diff(owners, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            owner = int(owners[begin])
            here = rows[begin:end] - self._starts[owner]
            first, count = int(here[0]), int(here[-1] - here[0]) + 1
            width = self.shape[1]
            block = np.fromfile(self._paths[owner], "<f4", count * width, offset=4 * first * width)
            vectors[begin:end] = block.reshape(count, width)[here - first]
        return vectors
