"""True dense scores of given documents, which hybrid search needs of those that only their words found."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from glow.search.passages import PassageMap
from glow.search.views import DenseView

__all__ = ["dense_scorer"]


def dense_scorer(
    dense: DenseView, passages: PassageMap | None, vector: NDArray[np.float32]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]] | None:
    """A function that tells the scores of documents for one query.

    Args:
        dense: the vectors.
        passages: which document each vector belongs to; None: row i is document i.
        vector: float32 [D], of the query, L2-normalised.

    Returns:
        Documents int64 [m] -> float32 [m] in [-1, 1], a document's best passage counting; None where the index holds
        no whole vectors by row.
    """
    if not dense.has_vectors:
        return None

    def score(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if passages is None or not len(documents):
            return dense.score(vector, documents)
        first, last = (
            passages.first[documents].astype(np.int64),
            passages.first[documents + 1].astype(np.int64),
        )
        counts = last - first
        starts = np.cumsum(counts) - counts
        rows = np.repeat(first - starts, counts) + np.arange(counts.sum())
        best: NDArray[np.float32] = np.maximum.reduceat(dense.score(vector, rows), starts)
        return best

    return score
