"""Compares runs: significance tests, unseen queries and failure analysis."""

from glow.evaluation.comparison.failures import Analysis, Change, Found, analyse
from glow.evaluation.comparison.significance import SAMPLES, Comparison, Test, compare, compare_all, holm
from glow.evaluation.comparison.student import paired_t_test, t_tail
from glow.evaluation.comparison.unseen import Unseen, unseen_queries

__all__ = [
    "SAMPLES", "Analysis", "Change", "Comparison", "Found", "Test", "Unseen", "analyse", "compare",
    "compare_all", "holm", "paired_t_test", "t_tail", "unseen_queries",
]  # fmt: skip
