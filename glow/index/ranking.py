"""A ranking: scores and rows of documents, best first, ties in one fixed order."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ranking", "best"]

Ranking = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores float32 [k] descending, and rows int64 [k] of the documents, each once."""


def best(
    scores: NDArray[np.float32], rows: NDArray[np.int64], k: int, order: NDArray[np.uint32] | None = None
) -> Ranking:
    """The k best of some scored documents; ties for the last place are resolved by `order`.

    Args:
        scores: float32 [m], in any order.
        rows: int64 [m], each once.
        k: maximum number of hits, >= 1.
        order: uint32 [n], each document's rank among ties; None: its row.
    """
    if len(scores) > k:
        kept = scores >= np.partition(scores, -k)[-k]
        scores, rows = scores[kept], rows[kept]
    ties = rows if order is None else order[rows]
    places = np.lexsort((ties, -scores))[:k]
    return scores[places], rows[places]
