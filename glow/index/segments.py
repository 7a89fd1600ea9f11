"""Two segments seen as one index: the rows of a base, some of them gone, and after them those of a delta.

Parts of an index are asked through the protocols here, so that what searches need not know whether there are one or two
segments. docs/decisions/0015 says why a delta is a small index of its own.

N, M   rows of base and delta; row N + i of both together is row i of the delta
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.row_mask import RowMask

__all__ = ["SegmentMask", "Segments"]


class SegmentMask(RowMask):
    """A mask of all rows that also knows its parts, so that they are cut once, not for every search.

    Args:
        base: of the base's rows, without those that are gone.
        delta: of the delta's rows.
    """

    __slots__ = ("base", "delta")

    def __init__(self, base: RowMask, delta: RowMask) -> None:
        super().__init__(np.concatenate([base.mask, delta.mask]))
        self.base = base
        self.delta = delta

    def tell(self, expression: Any) -> None:
        """As `RowMask.tell`; only the base may lie elsewhere."""
        self.expression = self.base.expression = expression

    @property
    def size_bytes(self) -> int:
        """What it may hold in memory, its parts included."""
        return super().size_bytes + self.base.size_bytes + self.delta.size_bytes


class Segments:
    """Where the base ends and the delta begins, and which rows of the base are gone; immutable.

    Args:
        base, delta: N and M.
        gone: different rows of the base that are found no more, int64 [t].

    Attributes:
        base, delta: as given.
        alive: the rows of the base that are left; None: all.
        count: rows that can be found, N - t + M.
    """

    def __init__(self, base: int, delta: int, gone: NDArray[np.int64]) -> None:
        self.base = base
        self.delta = delta
        self.count = base - len(gone) + delta
        self.alive: RowMask | None = None
        if len(gone):
            alive = np.ones(base, np.bool_)
            alive[gone] = False
            self.alive = RowMask(alive)

    def __len__(self) -> int:
        return self.base + self.delta

    def is_gone(self, row: int) -> bool:
        """Whether a row of the base is gone."""
        return self.alive is not None and not self.alive.mask[row]

    def join(self, base: NDArray[np.bool_], delta: NDArray[np.bool_]) -> SegmentMask:
        """Masks of both as one, without the rows that are gone.

        Args:
            base: bool [N]; belongs to the mask from now on.
            delta: bool [M], likewise.
        """
        if self.alive is not None:
            base &= self.alive.mask
        return SegmentMask(RowMask(base), RowMask(delta))

    def split(self, allowed: RowMask | None) -> tuple[RowMask | None, RowMask | None]:
        """The parts of a mask of all rows; rows that are gone are never allowed.

        Raises:
            MismatchError: if the mask has another number of rows.
        """
        if allowed is None:
            return self.alive, None
        if len(allowed) != len(self):
            raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {len(self)}")
        if isinstance(allowed, SegmentMask):
            return allowed.base, allowed.delta
        joined = self.join(allowed.mask[: self.base].copy(), allowed.mask[self.base :].copy())
        joined.tell(allowed.expression)
        return joined.base, joined.delta
