"""Searches passages and returns documents.

n   queries     k   documents a query       p   passages        D   dimensions
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from glow.index import RowMask
from glow.index.passages import Folded, PassageMap
from glow.index.vectors import GPU_MAX_HITS, DenseView, SearchParams

__all__ = ["search_documents"]


def search_documents(
    dense: DenseView,
    passages: PassageMap,
    vectors: NDArray[np.float32],
    k: int,
    params: SearchParams | None = None,
    allowed: RowMask | None = None,
) -> list[Folded]:
    """Finds the k documents whose best passages are nearest to each query.

    Enough passages are fetched for k different documents: first k times the average number per document, then twice
    as many until they suffice or are all. An exact search has one order of all passages, so its first k documents
    are correct for any number fetched.

    Args:
        dense: one vector per passage.
        passages: map from passages to documents.
        vectors: float32 [n, D], L2-normalized.
        k: documents per query, >= 1; fewer if fewer are allowed or found.
        params: how thoroughly to search.
        allowed: documents that may be found; None: all.

    Returns:
        For each query scores, documents and best passages, as `Folded`.

    Raises:
        QueryError: if `exact` is requested of an index without exact vectors.
    """
    mask = None if allowed is None else passages.mask(allowed)
    most = len(passages) if mask is None else mask.count
    if dense.device == "cuda":
        most = min(most, GPU_MAX_HITS)
    finished: dict[int, Folded] = {}
    waiting = list(range(len(vectors)))
    fetched = min(ceil(k * len(passages) / passages.header.documents), max(most, 1))
    while waiting:
        scores, rows = dense.search(vectors[waiting], fetched, params, allowed=mask, order=passages.order)
        for query, its_scores, its_rows in zip(waiting, scores, rows, strict=True):
            hits = passages.fold(its_scores, its_rows)
            if len(hits[1]) >= k or fetched >= most or (its_rows < 0).any():
                finished[query] = (hits[0][:k], hits[1][:k], hits[2][:k])
        waiting = [query for query in waiting if query not in finished]
        fetched = min(2 * fetched, most)
    return [finished[query] for query in range(len(vectors))]
