"""Measures of a ranking against judgements."""

from glow.evaluation.measures.err import err
from glow.evaluation.measures.evaluate import (
    DEFAULT_MEASURES,
    MEASURE_SETS,
    Evaluation,
    check_measures,
    evaluate,
    grades_by_query,
    measure_names,
)
from glow.evaluation.measures.ncg import ncg
from glow.evaluation.measures.ndcg import dcg, ndcg

__all__ = [
    "DEFAULT_MEASURES",
    "MEASURE_SETS",
    "Evaluation",
    "check_measures",
    "dcg",
    "err",
    "evaluate",
    "grades_by_query",
    "measure_names",
    "ncg",
    "ndcg",
]
