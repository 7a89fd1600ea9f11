"""Measures of a ranking against relevance judgments."""

from glow.evaluation.measures.evaluation import (
    DEFAULT_MEASURES,
    MEASURE_SETS,
    Evaluation,
    check_measures,
    evaluate,
    grades_by_query,
    measure_names,
)
from glow.evaluation.measures.gains import dcg, err, ncg, ndcg

__all__ = [
    "DEFAULT_MEASURES", "MEASURE_SETS", "Evaluation", "check_measures", "dcg", "err", "evaluate",
    "grades_by_query", "measure_names", "ncg", "ndcg",
]  # fmt: skip
