"""Choosing by judged queries how much learned impacts count beside BM25's, as `tune_share` does for a re-ranker.

q   queries     g   weights
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glow.errors import InputError, MismatchError
from glow.evaluation import Task, dcg, grades_by_query
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE, LearnedWeight
from glow.index.stored_fields import STORED_FIELDS
from glow.search import DEFAULT_CANDIDATES, EncodedQuery, rank_hybrid, read_query
from glow_index_builder.versions.tuning import DEPTH, Choice, choose

__all__ = ["WEIGHTS", "TunedWeight", "tune_learned"]

WEIGHTS = (0.0, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True, slots=True)
class TunedWeight(Choice):
    """The best weight over all queries, and what it gains over hybrid search with BM25 alone."""

    weight: LearnedWeight

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        return {"learned": self.weight.model_dump(), "nDCG@10": self.figures()}

    def summary(self) -> str:
        """In a few lines."""
        return f"learned impacts count {self.weight.weight:.4g}\n{self.lines('BM25 alone', 'weight')}"


def tune_learned(index: Index, task: Task, seed: int = 0) -> TunedWeight:
    """Chooses the weight with the highest nDCG@10 of hybrid search.

    Args:
        index: with learned impacts.
        task: judged queries.
        seed: of the folds and the bootstrap.

    Raises:
        MismatchError: if the index has no learned impacts.
        InputError: if fewer than two queries have a word and a relevant document.
    """
    if not index.holds(LEARNED_SPARSE):
        raise MismatchError(
            f"version {index.version} holds no learned impacts; build it with them (glow build --learned)"
        )
    learned = index[LEARNED_SPARSE]
    weights = (*WEIGHTS, learned.weight)
    versions = [index.with_reader(LEARNED_SPARSE, learned.with_weight(weight)) for weight in weights]
    grades, columns = grades_by_query(task.qrels), []
    for query in task.queries:
        judged, reading = grades[query.id], read_query(index, query.text)
        if max(judged.values()) <= 0 or not reading.tokens.words:
            continue
        asked = EncodedQuery.of(reading, index.encoder.read_batch([reading.tokens])[0])
        rows = {index[STORED_FIELDS].find(document): grade for document, grade in judged.items() if grade > 0}
        ideal = dcg(sorted((max(grade, 0) for grade in judged.values()), reverse=True)[:DEPTH])
        columns.append(
            [
                dcg([rows.get(row, 0) for row in found.rows[:DEPTH].tolist()]) / ideal
                for found in (rank_hybrid(each, asked, DEFAULT_CANDIDATES) for each in versions)
            ]
        )
    if len(columns) < 2:
        raise InputError(
            f"{task.data}/qrels/{task.split}.tsv has {len(columns)} queries with a word and a relevant document; expected two or more"
        )
    chosen, choice = choose(np.array(columns).T, seed)
    return TunedWeight(**choice.figures(), weight=LearnedWeight(weight=weights[chosen]))
