"""Two segments as one index: the rows of a base, without deleted ones, followed by those of a delta.

Components are joined by these classes, so that searches work alike for one and two segments. docs/decisions/0015 explains why a delta is a small index of its own.

N, M   rows of base and delta; row N + i of both together is row i of the delta
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask

__all__ = ["BaseAndDelta", "SegmentMask", "Segments"]

S = TypeVar("S")
Item = TypeVar("Item")
Scalar = TypeVar("Scalar", bound=np.generic)


class SegmentMask(RowMask):
    """A mask of all rows that keeps its two parts, so that no search splits it again.

    Args:
        base: mask of the base's rows, without deleted ones.
        delta: mask of the delta's rows.
    """

    __slots__ = ("base", "delta")

    def __init__(self, base: RowMask, delta: RowMask) -> None:
        super().__init__(np.concatenate([base.mask, delta.mask]))
        self.base = base
        self.delta = delta

    def tell(self, expression: Any) -> None:
        """As `RowMask.tell`; only the base may be in a vector store."""
        self.expression = self.base.expression = expression

    @property
    def size_bytes(self) -> int:
        """Its maximum size in memory, including its parts."""
        return super().size_bytes + self.base.size_bytes + self.delta.size_bytes


class Segments:
    """The sizes of base and delta, and the deleted rows of the base; immutable.

    Args:
        base, delta: N and M.
        gone: distinct deleted rows of the base, int64 [t].

    Attributes:
        base, delta: as given.
        alive: the live rows of the base; None: all.
        count: number of live rows, N - t + M.
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
        """Whether a row of the base is deleted."""
        return self.alive is not None and not self.alive.mask[row]

    def join(self, base: NDArray[np.bool_], delta: NDArray[np.bool_]) -> SegmentMask:
        """Masks of both as one, without deleted rows.

        Args:
            base: bool [N]; the mask takes ownership.
            delta: bool [M], likewise.
        """
        if self.alive is not None:
            base &= self.alive.mask
        return SegmentMask(RowMask(base), RowMask(delta))

    def split(self, allowed: RowMask | None) -> tuple[RowMask | None, RowMask | None]:
        """The parts of a mask of all rows; deleted rows are never allowed.

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


@dataclass(frozen=True, slots=True, eq=False)
class BaseAndDelta(Generic[S]):
    """The readers of a base and its delta; row N + i is row i of the delta.

    Attributes:
        name: of the version, for messages.
        base, delta: the readers.
        segments: rows of both, and deleted ones of the base, in the component's own rows.
        tombstones: deleted documents of the base, int64 [t], ascending.
        order: uint32 [N + M], the rank of each document's id among those of both.
    """

    name: str
    base: S
    delta: S
    segments: Segments
    tombstones: NDArray[np.int64]
    order: NDArray[np.uint32]

    def gather(
        self, rows: NDArray[np.int64], read: Callable[[S, NDArray[np.int64]], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """Results of `read` for rows of both, int64 [m] -> [m, ...], in their order."""
        is_new = rows >= self.segments.base
        old, new = read(self.base, rows[~is_new]), read(self.delta, rows[is_new] - self.segments.base)
        found = np.empty((len(rows), *new.shape[1:]), new.dtype)
        found[~is_new], found[is_new] = old, new
        return found

    def owner(self, row: int) -> tuple[S, int]:
        """The reader that has a row, and the row number there."""
        first = self.segments.base
        return (self.base, row) if row < first else (self.delta, row - first)

    def collect(self, rows: Sequence[int], read: Callable[[S, list[int]], list[Item]]) -> list[Item]:
        """As `gather`, for results that are not arrays."""
        first = self.segments.base
        old = iter(read(self.base, [row for row in rows if row < first]))
        new = iter(read(self.delta, [row - first for row in rows if row >= first]))
        return [next(old if row < first else new) for row in rows]

    def search(
        self,
        find: Callable[[S, RowMask | None, NDArray[np.uint32] | None], Ranking],
        k: int,
        allowed: RowMask | None,
        order: NDArray[np.uint32] | None,
    ) -> Ranking:
        """The k best of both, without deleted rows.

        Args:
            find: searches one reader: allowed rows, ranks of its rows -> scores and rows [..., k'].
            k: number of hits.
            allowed: rows of both; None: all.
            order: ranks of the rows of both, which break ties; None: by row.
        """
        base, delta = self.segments.split(allowed)
        later = None if order is None else order[self.segments.base :]
        (old_scores, old_rows), (new_scores, new_rows) = (
            find(self.base, base, order),
            find(self.delta, delta, later),
        )
        scores = np.concatenate([old_scores, new_scores], axis=-1)
        rows = np.concatenate([old_rows, new_rows + self.segments.base], axis=-1)
        # Row -1, which fills missing hits, has the score -inf: it comes last with any rank.
        places = np.lexsort((rows if order is None else order[rows], -scores), axis=-1)[..., :k]
        return np.take_along_axis(scores, places, -1), np.take_along_axis(rows, places, -1)
