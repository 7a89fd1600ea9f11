"""Chooses the weight of the re-ranker's score relative to first-stage retrieval by judged queries.

A weight that is good on one dataset may harm on another (docs/results/models.md), so it is fitted to an index's own
queries. The gain is estimated by cross-validation as for the fusion (`tuning`).

    q   queries     g   weights
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glow.errors import MismatchError
from glow.evaluation import Task
from glow.index import Index, RerankWeight
from glow.index.postings import POSTINGS
from glow.search import (
    DEFAULT_CANDIDATES,
    EncodedQuery,
    RankedDocuments,
    Reranking,
    mixed,
    rank_dense,
    rank_hybrid,
    rerank,
    score_unit,
)
from glow_index_builder.versions.judged import judged_queries
from glow_index_builder.versions.tuning import Choice, choose

__all__ = ["SHARES", "TunedShare", "tune_share"]

SHARES = (0.0, *(1 / part for part in (256, 128, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1)))


@dataclass(frozen=True, slots=True)
class TunedShare(Choice):
    """The best weight over all queries, and its gain over first-stage retrieval alone."""

    rerank_weight: RerankWeight

    def report(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {"rerank_weight": self.rerank_weight.model_dump(), "nDCG@10": self.figures()}

    def summary(self) -> str:
        """The result in a few lines of text."""
        return f"re-ranking weight {self.rerank_weight.share:.4g}\n{self.lines('first-stage retrieval', 'weight')}"


def tune_share(index: Index, task: Task, wanted: Reranking, seed: int = 0) -> TunedShare:
    """Chooses the weight with the highest nDCG@10.

    Args:
        index: an index with a re-ranker.
        task: judged queries.
        wanted: how many hits to re-rank, and how.
        seed: seed of the folds and the bootstrap.

    Raises:
        MismatchError: if the index has no re-ranker.
        InputError: as `judged_queries`.
    """
    if index.reranker is None:
        raise MismatchError(
            f"version {index.version} holds no re-ranker; build it with one (glow build --rerank DIR)"
        )
    # Ignores the index's own weight: each weight is tried on the plain scores.
    plain = replace(index, rerank_weight=RerankWeight(share=0.0))
    unit = score_unit(index, "hybrid" if index.holds(POSTINGS) else "dense", None)
    shares = (*SHARES, index.rerank_weight.share)
    columns = []
    for query in judged_queries(index, task):
        first = _first(index, query.asked)
        ranked, _ = rerank(plain, query.asked.text, first, wanted, unit, query.asked.vector)
        columns.append([query.ndcg(mixed(ranked, share, index.order).rows) for share in shares])
    values = np.array(columns).T
    chosen, choice = choose(values, seed)
    return TunedShare(**choice.figures(), rerank_weight=RerankWeight(share=shares[chosen]))


def _first(index: Index, query: EncodedQuery) -> RankedDocuments:
    if not index.holds(POSTINGS):
        return rank_dense(index, query.vector, DEFAULT_CANDIDATES)
    return rank_hybrid(index, query, DEFAULT_CANDIDATES)
