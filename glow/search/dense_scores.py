"""True dense scores of given documents, which hybrid search needs for lexical hits, and their best passages."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from glow.index import Searchable
from glow.index.passages import PASSAGES, PassageMap
from glow.index.vectors import VECTORS, DenseView

__all__ = ["best_passages", "dense_scorer", "rows_read"]


def dense_scorer(
    index: Searchable, vector: NDArray[np.float32]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]] | None:
    """Returns a function that computes documents' scores for one query, or None.

    Args:
        index: with the vectors.
        vector: float32 [D], of the query, L2-normalized.

    Returns:
        Documents int64 [m] -> float32 [m] in [-1, 1], of each document's best passage; None if the index cannot return
        full vectors by row.
    """
    dense = index[VECTORS]
    if not dense.has_vectors:
        return None
    if not index.holds(PASSAGES):
        return lambda documents: dense.score(vector, documents)
    passages = index[PASSAGES]

    def score(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if not len(documents):
            return dense.score(vector, documents)
        rows, starts = _rows_of(passages, documents)
        best: NDArray[np.float32] = np.maximum.reduceat(dense.score(vector, rows), starts)
        return best

    return score


def best_passages(
    dense: DenseView,
    passages: PassageMap,
    vector: NDArray[np.float32] | None,
    documents: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The row of each document's best passage for a query, int64 [m]; its first passage if no vectors are available.

    Args:
        dense: the vectors of passages.
        passages: map from passages to documents.
        vector: float32 [D], of the query; None: unknown.
        documents: int64 [m].
    """
    first: NDArray[np.int64] = passages.first[documents].astype(np.int64)
    if vector is None or not dense.has_vectors or not len(documents):
        return first
    rows, starts = _rows_of(passages, documents)
    scores = dense.score(vector, rows)
    ends = [*starts[1:].tolist(), len(rows)]
    found = [
        start + int(scores[start:end].argmax()) for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    best: NDArray[np.int64] = rows[found]
    return best


def rows_read(
    index: Searchable,
    documents: NDArray[np.int64],
    known: Mapping[int, int],
    vector: NDArray[np.float32] | None,
) -> NDArray[np.int64]:
    """The row of each document's vector, or of the vector of its best passage, int64 [m].

    Args:
        index: with the vectors.
        documents: int64 [m].
        known: document row -> row of its best passage, as found by a search.
        vector: as for `best_passages`, for the other documents.
    """
    if not index.holds(PASSAGES):
        return documents.astype(np.int64)
    found = np.array([known.get(row, -1) for row in documents.tolist()], np.int64)
    missing = found < 0
    if missing.any():
        found[missing] = best_passages(index[VECTORS], index[PASSAGES], vector, documents[missing])
    return found


def _rows_of(
    passages: PassageMap, documents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The passages of documents, int64 [p], and where each document's passages begin among them, int64 [m]."""
    first = passages.first[documents].astype(np.int64)
    counts = passages.first[documents + 1].astype(np.int64) - first
    starts = np.cumsum(counts) - counts
    return np.repeat(first - starts, counts) + np.arange(counts.sum()), starts
