"""A ranking: scores and rows of documents, best first, ties in one fixed order."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ranking", "best"]

Ranking = tuple[NDArray[np.float32], NDArray[np.int64]]
"""scores float32 [k] descending, and rows int64 [k] of the documents, each once."""


def best(
    scores: NDArray[np.float32], rows: NDArray[np.int64], k: int, order: NDArray[np.uint32] | None = None
) -> Ranking:
    """The k best of some scored documents; all that tie for the last place are compared by their order.

    Args:
        scores: float32 [m], in any order.
        rows: int64 [m], each once.
        k: most hits, >= 1.
        order: uint32 [n], each document's place among equals; None: its row.
    """
    if len(scores) > k:
        kept = scores >= np.partition(scores, -k)[-k]
        scores, rows = scores[kept], rows[kept]
    ties = rows if order is None else order[rows]
    places = np.lexsort((ties, -scores))[:k]
    return scores[places], rows[places]
