"""Lists of postings added up: the k documents with the highest sums.

Every posting is added. Leaving out those that cannot matter (MaxScore) was tried: exact, and slower at a million documents, because adding
is one pass over memory and every test for what is left another (docs/results/learned.md).

    n   documents       p   postings of one list        k   hits
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.search.ranking import Ranking, best
from glow.search.row_mask import RowMask

__all__ = ["PostingList", "Sums", "look_up"]

# Below a posting for every so many documents, looking at the postings is less work than looking at all documents.
DOCUMENTS_PER_POSTING = 8
# A look-up of one row in the postings of a word costs about as much as adding so many of them.
POSTINGS_PER_LOOKUP = 32


@dataclass(frozen=True, slots=True, eq=False)
class PostingList:
    """One word of a query: the documents that it counts for, and how much.

    Attributes:
        rows: uint32 [p], ascending.
        values: float32 [p], or uint8 codes.
        factor: times a value it is what the word adds; 1 leaves float32 as it is.
    """

    rows: NDArray[np.uint32]
    values: NDArray[np.float32] | NDArray[np.uint8]
    factor: np.float32

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """What it adds at places of the list, float32."""
        values = self.values[places]
        if self.factor == 1.0 and values.dtype == np.float32:
            return values  # type: ignore[return-value]
        return np.multiply(values, self.factor, dtype=np.float32)

    def times(self, weight: float) -> "PostingList":
        """The same list with every impact times a weight > 0."""
        return PostingList(self.rows, self.values, np.float32(self.factor * weight))


def look_up(lists: Sequence[PostingList], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sums of some documents, float32 [m], to the bit those of `Sums.search` over the same lists.

    Args:
        lists: in the order in which they are added.
        rows: int64 [m], in any order.
    """
    scores = np.zeros(len(rows), np.float32)
    wanted = rows.astype(np.uint32)  # of another type, the search would convert the postings
    for each in lists:
        places = np.minimum(np.searchsorted(each.rows, wanted), len(each.rows) - 1)
        here = each.rows[places] == wanted
        scores[here] += each.impacts(places[here])
    return scores


class Sums:
    """Adds up lists over n documents; safe to use from many threads, each of which keeps float32 [n].

    Args:
        documents: n.
    """

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._local = threading.local()

    def search(
        self,
        lists: Sequence[PostingList],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest sums, all > 0; arguments and result as `ImpactIndex.search`."""
        postings = sum(len(each.rows) for each in lists)
        if allowed is not None and allowed.count * POSTINGS_PER_LOOKUP * len(lists) < postings:
            rows = allowed.rows
            scores = look_up(lists, rows)
            return best(scores[scores > 0], rows[scores > 0], k, order)
        accumulator = self._accumulator()
        added: list[PostingList] = []
        try:
            for each in lists:
                added.append(each)
                np.add.at(accumulator, each.rows, each.impacts())
            rows = self._candidates(accumulator, lists, postings, k, allowed)
            return best(accumulator[rows], rows, k, order)
        finally:
            self._clear(accumulator, added)

    def _accumulator(self) -> NDArray[np.float32]:
        """This thread's float32 [n], all zeros."""
        accumulator: NDArray[np.float32] | None = getattr(self._local, "accumulator", None)
        if accumulator is None:
            accumulator = np.zeros(self._documents, np.float32)
            self._local.accumulator = accumulator
        return accumulator

    def _clear(self, accumulator: NDArray[np.float32], added: Sequence[PostingList]) -> None:
        if sum(len(each.rows) for each in added) * DOCUMENTS_PER_POSTING > self._documents:
            accumulator.fill(0.0)
            return
        for each in added:
            accumulator[each.rows] = 0.0

    def _candidates(
        self,
        accumulator: NDArray[np.float32],
        lists: Sequence[PostingList],
        postings: int,
        k: int,
        allowed: RowMask | None,
    ) -> NDArray[np.int64]:
        """Rows with a score, among them the k best and all that tie with the last of these."""
        if postings * DOCUMENTS_PER_POSTING > self._documents:
            rows = np.flatnonzero(accumulator > 0)  # of booleans: several times as fast as of floats
            return _allowed(rows, allowed)
        every = [each.rows for each in lists]
        held = np.concatenate(every) if every else np.empty(0, np.uint32)
        if allowed is not None:
            held = held[allowed.mask[held]]
        # A document comes at most once a list, so the k * lists best places hold at least k documents.
        places = k * len(lists)
        if places < len(held):
            scores = accumulator[held]
            held = held[scores >= np.partition(scores, -places)[-places]]
        return np.unique(held).astype(np.int64)


def _allowed(rows: NDArray[np.int64], allowed: RowMask | None) -> NDArray[np.int64]:
    return rows if allowed is None else rows[allowed.mask[rows]]
