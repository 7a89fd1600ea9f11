"""Skips postings that cannot change the result: MaxScore (Turtle and Flood, 1995) with block maxima (Ding and Suel, 2011).

Lists are added, the shortest first. Once the k-th best sum exceeds all that the remaining lists can add, no new document
can enter the result. Then only the current candidates are looked up in these lists, fewer with each list, and only their
blocks are decoded. The result is the same as with all postings added.

    n   documents       m   candidates
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.posting_list import PostingList
from glow.index.row_mask import RowMask

__all__ = ["promising"]

SLACK = 1e-5
"""Relative limit of the difference between float32 sums in different orders."""
DOCUMENTS_PER_POSTING = 8
"""With less than one posting per this many documents, visiting postings is less work than visiting all documents."""
SAMPLED = 1 << 16
"""For a longer list, the k-th best of this many sums is a sufficient bound."""


def promising(
    lists: Sequence[PostingList],
    k: int,
    allowed: RowMask | None,
    sums: NDArray[np.float32],
    added: list[NDArray[np.uint32]],
) -> NDArray[np.int64]:
    """Adds up lists as far as necessary.

    Args:
        lists: of the query's words.
        k: number of requested hits.
        allowed: the documents that may be found; None: all.
        sums: float32 [n] of zeros, to which lists are added.
        added: receives the allowed rows of each added list.

    Returns:
        int64 [m] rows ascending, including the k best and all ties with the last of these.
    """
    ordered = sorted(lists, key=lambda each: each.count)
    rest = np.cumsum([0.0, *(each.largest for each in reversed(ordered))])[::-1].tolist()
    least = 0.0
    for number, each in enumerate(ordered):
        if rest[number] < least * (1 - SLACK):
            return _looked_up(ordered[number:], rest[number:], k, least, sums, added)
        rows, impacts = each.rows, each.impacts()
        if allowed is not None:
            kept = allowed.mask[rows]
            rows, impacts = rows[kept], impacts[kept]
        np.add.at(sums, rows, impacts)
        added.append(rows)
        # Not worthwhile if nothing can be skipped.
        if number + 1 < len(ordered):
            least = max(least, _kth(sums[rows[:SAMPLED]], k))
    return _of_sums(sums, added, k)


def _of_sums(sums: NDArray[np.float32], added: Sequence[NDArray[np.uint32]], k: int) -> NDArray[np.int64]:
    """The candidates after every list was added."""
    if sum(map(len, added)) * DOCUMENTS_PER_POSTING > len(sums):
        rows = np.flatnonzero(sums > 0)
        scores = sums[rows]
        kept: NDArray[np.int64] = rows[scores >= _kth(scores, k) * (1 - SLACK)]
        return kept
    held = np.concatenate(added) if added else np.empty(0, np.uint32)
    scores = sums[held]
    # A document is in a list at most once, so the k * lists best places have at least k documents.
    best: NDArray[np.uint32] = held[scores >= _kth(scores, k * len(added)) * (1 - SLACK)]
    return _distinct(best).astype(np.int64)


def _looked_up(
    lists: Sequence[PostingList],
    rest: Sequence[float],
    k: int,
    least: float,
    sums: NDArray[np.float32],
    added: list[NDArray[np.uint32]],
) -> NDArray[np.int64]:
    """The candidates that remain after they were looked up in the other lists."""
    floor = least * (1 - SLACK) - rest[0]
    if sum(map(len, added)) * DOCUMENTS_PER_POSTING > len(sums):
        rows = np.flatnonzero(sums >= np.float32(max(floor, 1e-30))).astype(np.uint32)
    else:
        rows = _distinct(np.concatenate([each[sums[each] >= floor] for each in added]))
    for number, each in enumerate(lists):
        rows = rows[sums[rows] + each.bounds(rows) + rest[number + 1] >= least * (1 - SLACK)]
        if each.reads_less(rows):
            here, places = each.find(rows)
            sums[rows[here]] += each.impacts(places)
        else:  # also for documents that are not candidates, which are ignored
            np.add.at(sums, each.rows, each.impacts())
            added.append(each.rows)
        least = max(least, _kth(sums[rows], k))
    return rows[sums[rows] >= least * (1 - SLACK)].astype(np.int64)


def _distinct(rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The distinct rows, ascending; several times as fast as `np.unique`, which hashes."""
    rows = np.sort(rows)
    return rows[np.flatnonzero(np.diff(rows, prepend=rows[:1] + np.uint32(1)))]


def _kth(scores: NDArray[np.floating], k: int) -> float:
    """The k-th best of some sums, a lower bound for that of all; 0 if there are fewer."""
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else 0.0
