"""Which rows a search may return, in the three forms that searching needs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowMask"]

# With more rows than this share of n, 8 bytes for each cost more memory than making them anew costs time.
KEPT_SHARE = 8


class RowMask:
    """Rows that a search may return; immutable, so safe to share between threads.

    Args:
        mask: bool [n]; belongs to this object from now on.

    Attributes:
        mask: bool [n], read-only.
        count: allowed rows.
        expression: a filter that every row of the mask matches, and few others, for who searches elsewhere; None unless `tell` was called.
        packed: uint8 [n / 8], the mask as bits, lowest first, as FAISS reads it.
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
        """Says which filter it comes from; before anybody else has the mask."""
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
        """What it may hold in memory."""
        return self.mask.nbytes + self.packed.nbytes + (8 * self.count if self._is_small() else 0)

    def _is_small(self) -> bool:
        return self.count * KEPT_SHARE <= len(self.mask)
