"""What a shard finds for one query, with every score that fusing the finds of all shards may ask for.

Each candidate of one part comes with its score in the other. So who merges needs no second round for scores: what
decides the ranking is worked out from the candidates of all shards, as from those of one index.

c   candidates of the shard: the union of both parts'
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glow.search.dense import SearchParams
from glow.search.ranking import Ranking
from glow.search.retrievers import Retriever, Searchable, gather_hybrid, rank_dense, rank_lexical
from glow.search.row_mask import RowMask

__all__ = ["ShardCandidates", "gather_candidates"]


@dataclass(frozen=True, slots=True, eq=False)
class ShardCandidates:
    """Candidates of one shard, in the order of its rows.

    Attributes:
        rows: int64 [c], of documents in the shard.
        dense, lexical: float32 [c], true scores of both parts; NaN where a part was not asked, or cannot tell.
        passages: int64 [c], row of the best passage; -1 where vectors did not find the document, or there are none.
        found_dense, found_lexical: int64, places in `rows` of what each part found, best first.
        head: float32, cosines of the shard's first hits whatever the filter allows; None: those of `found_dense`.
    """

    rows: NDArray[np.int64]
    dense: NDArray[np.float32]
    lexical: NDArray[np.float32]
    passages: NDArray[np.int64]
    found_dense: NDArray[np.int64]
    found_lexical: NDArray[np.int64]
    head: NDArray[np.float32] | None = None


def gather_candidates(
    index: Searchable,
    text: str,
    vector: NDArray[np.float32] | None,
    k: int,
    retriever: Retriever,
    params: SearchParams,
    allowed: RowMask | None = None,
) -> ShardCandidates:
    """The k best of each part that the retriever asks.

    Args:
        index: the shard.
        text: the query as it is searched.
        vector: float32 [D], L2-normalised; None for a search by words.
        k: of each part, >= 1.
        retriever: `dense`, `lexical` or `hybrid`.
        params, allowed: as for `rank_dense`.
    """
    if retriever == "hybrid":
        assert vector is not None  # noqa: S101 - who asks has encoded the query
        ranked, both = gather_hybrid(index, text, vector, k, params, allowed)
        rows = np.union1d(both.dense[1], both.lexical[1]).astype(np.int64)
        dense = np.full(len(rows), np.nan, np.float32) if both.score_dense is None else both.score_dense(rows)
        dense = _with_found(rows, dense, both.dense)
        lexical = both.score_lexical(rows).astype(np.float32)
        passages = dict(ranked.passages)
        return replace(_candidates(rows, dense, lexical, both.dense, both.lexical, passages), head=both.head)
    if retriever == "dense":
        assert vector is not None  # noqa: S101
        ranked = rank_dense(index, vector, k, params, allowed)
        rows = np.sort(ranked.rows)
        unknown = np.full(len(rows), np.nan, np.float32)
        found = (ranked.scores, ranked.rows)
        return _candidates(
            rows, _with_found(rows, unknown, found), unknown, found, None, dict(ranked.passages)
        )
    ranked = rank_lexical(index, text, k, allowed)
    rows = np.sort(ranked.rows)
    unknown = np.full(len(rows), np.nan, np.float32)
    found = (ranked.scores, ranked.rows)
    return _candidates(rows, unknown, _with_found(rows, unknown, found), None, found, {})


def _with_found(rows: NDArray[np.int64], scores: NDArray[np.float32], found: Ranking) -> NDArray[np.float32]:
    """Scores with those that ranked in place of those worked out afterwards, which may differ in their last bit."""
    known = scores.copy()
    known[np.searchsorted(rows, found[1])] = found[0]
    return known


def _candidates(
    rows: NDArray[np.int64],
    dense: NDArray[np.float32],
    lexical: NDArray[np.float32],
    found_dense: Ranking | None,
    found_lexical: Ranking | None,
    passages: dict[int, int],
) -> ShardCandidates:
    nothing = np.empty(0, np.int64)
    best = np.array([passages.get(row, -1) for row in rows.tolist()], np.int64)
    in_dense, in_lexical = (
        nothing if found is None else np.searchsorted(rows, found[1]).astype(np.int64)
        for found in (found_dense, found_lexical)
    )
    return ShardCandidates(rows, dense, lexical, best, in_dense, in_lexical)
