"""The rows that a search may return, in the three forms that searches need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowMask"]

# Above this fraction of n, caching 8 bytes per row costs more memory than recomputing them costs time.
KEPT_SHARE = 8


class RowMask:
    """Rows that a search may return; immutable, so safe to share between threads.

    Args:
        mask: bool [n]; this object takes ownership.

    Attributes:
        mask: bool [n], read-only.
        count: number of allowed rows.
        expression: a filter that matches every row of the mask and few others, for a vector store; None unless `tell` was called.
        packed: uint8 [n / 8], the mask as bits, lowest first, for FAISS.
    """

    __slots__ = ("_rows", "count", "expression", "mask", "packed")

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.mask = mask
        self.expression: Any = None
        self.mask.flags.writeable = False
        self.count = int(np.count_nonzero(mask))
        self.packed: NDArray[np.uint8] = np.packbits(mask, bitorder="little")
        self._rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.mask)

    def tell(self, expression: Any) -> None:
        """Stores the filter that it was computed from; to be called before the mask is shared."""
        self.expression = expression

    @property
    def rows(self) -> NDArray[np.int64]:
        """The allowed rows, int64 [count], ascending."""
        if self._rows is not None:
            return self._rows
        rows = np.flatnonzero(self.mask)
        if self._is_small():
            self._rows = rows
        return rows

    @property
    def size_bytes(self) -> int:
        """Its maximum size in memory."""
        return self.mask.nbytes + self.packed.nbytes + (8 * self.count if self._is_small() else 0)

    def _is_small(self) -> bool:
        return self.count * KEPT_SHARE <= len(self.mask)
