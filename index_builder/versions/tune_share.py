"""Choosing by judged queries how much the re-ranker's score counts beside the first search's.

A share that was good on one collection may harm on another (docs/results/reranking.md), so it is fitted to an index' own queries, and the gain
is estimated by cross-validation as for the fusion (`tuning`).

    q   queries     g   shares
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError, MismatchError
from glow.evaluation import Task, dcg, grades_by_query
from glow.index import Index, Mixture
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import (
    DEFAULT_CANDIDATES,
    EncodedQuery,
    Ranked,
    Reranking,
    mixed,
    rank_dense,
    rank_hybrid,
    read_query,
    rerank,
    score_unit,
)
from glow_index_builder.versions.tuning import DEPTH, Choice, choose

__all__ = ["SHARES", "TunedShare", "tune_share"]

SHARES = (0.0, *(1 / part for part in (256, 128, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1)))


@dataclass(frozen=True, slots=True)
class TunedShare(Choice):
    """The best share over all queries, and what it gains over the first search alone."""

    mixture: Mixture

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        return {"mixture": self.mixture.model_dump(), "nDCG@10": self.figures()}

    def summary(self) -> str:
        """In a few lines."""
        return f"the re-ranker's score counts {self.mixture.share:.4g}\n{self.lines('first search', 'share')}"


@dataclass(frozen=True, slots=True, eq=False)
class _Query:
    """What the first search found and the re-ranker says of it, with the judgements."""

    ranked: Ranked
    grades: Mapping[int, int]
    ideal: float

    def ndcg(self, share: float, order: NDArray[np.uint32] | None) -> float:
        if self.ideal == 0.0:
            return 0.0
        rows = mixed(self.ranked, share, order).rows[:DEPTH].tolist()
        return dcg([self.grades.get(row, 0) for row in rows]) / self.ideal


def tune_share(index: Index, task: Task, wanted: Reranking, seed: int = 0) -> TunedShare:
    """Chooses the share with the highest nDCG@10.

    Args:
        index: with a re-ranker.
        task: judged queries.
        wanted: how many hits are read again, and how.
        seed: of the folds and the bootstrap.

    Raises:
        MismatchError: if the index has no re-ranker.
        InputError: if fewer than two queries have a word and a relevant document.
    """
    if index.reranker is None:
        raise MismatchError(
            f"version {index.version} holds no re-ranker; build it with one (glow build --rerank DIR)"
        )
    queries = _gather(index, task, wanted)
    shares = (*SHARES, index.mixture.share)
    values = np.array([[query.ndcg(share, index.order) for query in queries] for share in shares])
    chosen, choice = choose(values, seed)
    return TunedShare(**choice.figures(), mixture=Mixture(share=shares[chosen]))


def _gather(index: Index, task: Task, wanted: Reranking) -> list[_Query]:
    grades = grades_by_query(task.qrels)
    found: list[_Query] = []
    # Whatever the index has: each share is tried on the scores as they are.
    plain = replace(index, mixture=Mixture(share=0.0))
    unit = score_unit(index, "dense" if not index.holds(POSTINGS) else "hybrid", None)
    for query in task.queries:
        judged = grades[query.id]
        reading = read_query(index, query.text)
        if max(judged.values()) <= 0 or not reading.tokens.words:
            continue
        asked = EncodedQuery.of(reading, index.encoder.read_batch([reading.tokens])[0])
        ranked, _ = rerank(plain, reading.text, _first(index, asked), wanted, unit, asked.vector)
        rows = {index[STORED_FIELDS].find(document): grade for document, grade in judged.items() if grade > 0}
        ideal = dcg(sorted((max(grade, 0) for grade in judged.values()), reverse=True)[:DEPTH])
        found.append(_Query(ranked, {row: grade for row, grade in rows.items() if row is not None}, ideal))
    if len(found) < 2:
        raise InputError(
            f"{task.data}/qrels/{task.split}.tsv has {len(found)} queries with a word and a relevant document; expected two or more"
        )
    return found


def _first(index: Index, query: EncodedQuery) -> Ranked:
    if not index.holds(POSTINGS):
        return rank_dense(index, query.vector, DEFAULT_CANDIDATES)
    return rank_hybrid(index, query, DEFAULT_CANDIDATES)
