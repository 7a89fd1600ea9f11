"""nDCG is what ir-measures says it is."""

import ir_measures
import numpy as np
import pytest

from glow.evaluation.measures import dcg, ndcg


def test_values_are_those_of_ir_measures() -> None:
    generator = np.random.default_rng(0)
    for _ in range(30):
        documents = [f"d{number}" for number in range(25)]
        names = generator.permutation(documents)[:12].tolist()
        grades = {name: int(generator.integers(0, 4)) for name in names}
        ranking = generator.permutation(documents)[: int(generator.integers(0, 20))].tolist()
        qrels = [ir_measures.Qrel("q", name, grade) for name, grade in grades.items()]
        run = [ir_measures.ScoredDoc("q", name, -rank) for rank, name in enumerate(ranking)]
        expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]
        assert ndcg(ranking, grades, 10) == pytest.approx(expected, abs=1e-9)


def test_a_worked_example() -> None:
    """Gains 3, 2 at ranks 1 and 3 of the ideal 3, 2: (3 + 2 / 2) / (3 + 2 / log2(3))."""
    assert dcg([3, 0, 2]) == pytest.approx(4.0)
    assert ndcg(["a", "x", "b"], {"a": 3, "b": 2}, 10) == pytest.approx(4.0 / (3.0 + 2.0 / np.log2(3)))


def test_without_a_relevant_document_it_is_zero() -> None:
    assert ndcg(["a"], {}, 10) == ndcg(["a"], {"a": 0, "b": -1}, 10) == ndcg([], {"a": 1}, 10) == 0.0
