"""Chooses the weight of learned impacts relative to BM25 by judged queries, as `tune_share` does for a re-ranker.

q   queries     g   weights
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glow.errors import MismatchError
from glow.evaluation import Task
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE, LearnedWeight
from glow.search import DEFAULT_CANDIDATES, rank_hybrid
from glow_index_builder.versions.judged import judged_queries
from glow_index_builder.versions.tuning import Choice, choose

__all__ = ["WEIGHTS", "TunedWeight", "tune_learned"]

WEIGHTS = (0.0, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True, slots=True)
class TunedWeight(Choice):
    """The best weight over all queries, and its gain over hybrid search with BM25 alone."""

    weight: LearnedWeight

    def report(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {"learned": self.weight.model_dump(), "nDCG@10": self.figures()}

    def summary(self) -> str:
        """The result in a few lines of text."""
        return f"weight of learned impacts {self.weight.weight:.4g}\n{self.lines('BM25 alone', 'weight')}"


def tune_learned(index: Index, task: Task, seed: int = 0) -> TunedWeight:
    """Chooses the weight with the highest nDCG@10 of hybrid search.

    Args:
        index: with learned impacts.
        task: judged queries.
        seed: seed of the folds and the bootstrap.

    Raises:
        MismatchError: if the index has no learned impacts.
        InputError: as `judged_queries`.
    """
    if not index.holds(LEARNED_SPARSE):
        raise MismatchError(
            f"version {index.version} holds no learned impacts; build it with them (glow build --learned-sparse)"
        )
    learned = index[LEARNED_SPARSE]
    weights = (*WEIGHTS, learned.weight)
    versions = [index.with_reader(LEARNED_SPARSE, learned.with_weight(weight)) for weight in weights]
    columns = [
        [query.ndcg(rank_hybrid(each, query.asked, DEFAULT_CANDIDATES).rows) for each in versions]
        for query in judged_queries(index, task)
    ]
    chosen, choice = choose(np.array(columns).T, seed)
    return TunedWeight(**choice.figures(), weight=LearnedWeight(weight=weights[chosen]))
