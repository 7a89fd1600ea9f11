"""Which documents answer a query, best first: by vectors, by words, or by both.

What a service answers with, and what evaluation and tuning must therefore measure: which parts of an index a retriever
needs, how much each gathers, and which scores are known of what they found.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.search.dense import SearchParams
from glow.search.dense_scores import dense_scorer
from glow.search.hybrid import Fusion, fuse_rankings
from glow.search.index import Index
from glow.search.passages import search_documents
from glow.search.row_mask import RowMask
from glow.search.views import ImpactsView

__all__ = ["DEFAULT_CANDIDATES", "Ranked", "Retriever", "rank_dense", "rank_hybrid", "rank_lexical"]

Retriever = Literal["dense", "lexical", "hybrid"]
DEFAULT_CANDIDATES = 100
"""Hits that a search gathers, of each part where there are two, unless it is asked for more."""
DEFAULT_PARAMS = SearchParams()
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Documents, best first, ties by id.

    Attributes:
        scores: float32 [k], descending: what ranks.
        rows: int64 [k], rows of documents.
        parts: `dense` or `lexical` -> float32 [k], that part's score; NaN where it is not known.
        passages: document row -> row of its best passage; empty where the index has none, or only words found it.
    """

    scores: NDArray[np.float32]
    rows: NDArray[np.int64]
    parts: Mapping[str, NDArray[np.float32]]
    passages: Mapping[int, int]


def rank_dense(
    index: Index,
    vector: Vector,
    k: int,
    params: SearchParams = DEFAULT_PARAMS,
    allowed: RowMask | None = None,
) -> Ranked:
    """The k documents nearest to a query; fewer where an approximate search meets fewer.

    Args:
        index: whose query tower made the vector.
        vector: float32 [D], L2-normalised.
        k: documents, >= 1.
        params: how thoroughly to search.
        allowed: documents that may be found; None: all.
    """
    if index.passages is not None:
        scores, rows, found = search_documents(index.dense, index.passages, vector[None], k, params, allowed)[
            0
        ]
        return Ranked(scores, rows, {"dense": scores}, dict(zip(rows.tolist(), found.tolist(), strict=True)))
    every_score, every_row = index.dense.search(vector[None], k, params, allowed=allowed, order=index.order)
    met = int(np.count_nonzero(every_row[0] >= 0))  # what is missing stands at the end
    scores, rows = every_score[0, :met], every_row[0, :met]
    return Ranked(scores, rows, {"dense": scores}, {})


def rank_lexical(index: Index, text: str, k: int, allowed: RowMask | None = None) -> Ranked:
    """The k documents whose words match a query's best; none that shares no word with it. Needs `index.impacts`."""
    words = index.preprocessor.pieces.words(text)
    scores, rows = _impacts(index).search(words, k, allowed, index.order)
    return Ranked(scores, rows, {"lexical": scores}, {})


def rank_hybrid(
    index: Index,
    text: str,
    vector: Vector,
    k: int,
    params: SearchParams = DEFAULT_PARAMS,
    fusion: Fusion | None = None,
    allowed: RowMask | None = None,
) -> Ranked:
    """Both rankings, k documents of each, fused; the k best of them. Needs `index.impacts`.

    Arguments as for `rank_dense`, and `fusion`: how to make one ranking of two; None: as the index says.
    """
    dense = rank_dense(index, vector, k, params, allowed)
    words = index.preprocessor.pieces.words(text)
    impacts = _impacts(index)
    fused = fuse_rankings(
        fusion or index.fusion,
        (dense.scores, dense.rows),
        impacts.search(words, k, allowed, index.order),
        index.order,
        dense_scorer(index.dense, index.passages, vector),
        lambda rows: impacts.score(words, rows),
        impacts.largest,
    )
    parts = {name: scores[:k] for name, scores in fused.parts.items()}
    return Ranked(fused.scores[:k], fused.rows[:k], parts, dense.passages)


def _impacts(index: Index) -> ImpactsView:
    assert index.impacts is not None  # noqa: S101 - a request for it is refused before
    return index.impacts
