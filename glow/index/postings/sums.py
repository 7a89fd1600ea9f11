"""Adds up lists of postings: the k documents with the highest sums.

Every posting is added. Skipping was exact, but slower at a million documents: adding is one pass over memory, and
every test for candidates is another (docs/results/models.md).

    n   documents       p   postings of one list        m   some rows       k   hits
"""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.posting_list import POSTINGS_PER_LOOKUP, PostingList
from glow.index.ranking import Ranking, best
from glow.index.row_mask import RowMask

__all__ = ["ScoreAccumulator", "look_up", "look_up_each"]

DOCUMENTS_PER_POSTING = 8
"""With less than one posting per this many documents, visiting postings is less work than visiting all documents."""


def look_up(lists: Sequence[PostingList], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sums of given documents, float32 [m], bit for bit those of `ScoreAccumulator.search` over the same lists.

    Args:
        lists: in the order of addition.
        rows: int64 [m], in any order.
    """
    return look_up_each([lists], rows)[:, 0]


def look_up_each(words: Sequence[Sequence[PostingList]], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sums of given documents over the lists of each word, float32 [m, words]."""
    scores = np.zeros((len(rows), len(words)), np.float32)
    order = np.argsort(rows, kind="stable")
    wanted = rows[order].astype(np.uint32)  # another type would make the search convert the postings
    for column, lists in enumerate(words):
        for each in lists:
            here, places = each.find(wanted)
            scores[order[here], column] += each.impacts(places)
    return scores


class ScoreAccumulator:
    """Accumulates term scores per document; safe to use from many threads. Each thread reuses one float32 array [n].

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
        postings = sum(each.count for each in lists)
        if allowed is not None and allowed.count * POSTINGS_PER_LOOKUP * len(lists) < postings:
            rows = allowed.rows
            scores = look_up(lists, rows)
            return best(scores[scores > 0], rows[scores > 0], k, order)
        accumulator = self._accumulator()
        added: list[NDArray[np.uint32]] = []
        try:
            for each in lists:
                added.append(each.rows)
                np.add.at(accumulator, each.rows, each.impacts())
            rows = self._candidates(accumulator, added, k, allowed)
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

    def _clear(self, accumulator: NDArray[np.float32], added: Sequence[NDArray[np.uint32]]) -> None:
        if sum(map(len, added)) * DOCUMENTS_PER_POSTING > self._documents:
            accumulator.fill(0.0)
            return
        for rows in added:
            accumulator[rows] = 0.0

    def _candidates(
        self,
        accumulator: NDArray[np.float32],
        added: Sequence[NDArray[np.uint32]],
        k: int,
        allowed: RowMask | None,
    ) -> NDArray[np.int64]:
        """Rows with a score, among them the k best and all that tie with the last of these."""
        if sum(map(len, added)) * DOCUMENTS_PER_POSTING > self._documents:
            rows = np.flatnonzero(accumulator > 0)  # of booleans: several times as fast as of floats
            return _allowed(rows, allowed)
        held = np.concatenate(added) if added else np.empty(0, np.uint32)
        if allowed is not None:
            held = held[allowed.mask[held]]
        # A document comes at most once a list, so the k * lists best places hold at least k documents.
        places = k * len(added)
        if places < len(held):
            scores = accumulator[held]
            held = held[scores >= np.partition(scores, -places)[-places]]
        return np.unique(held).astype(np.int64)


def _allowed(rows: NDArray[np.int64], allowed: RowMask | None) -> NDArray[np.int64]:
    return rows if allowed is None else rows[allowed.mask[rows]]
