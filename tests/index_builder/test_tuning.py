"""Choosing a fusion: the better part gets the weight, and the told gain is that of queries that did not choose."""

import ir_measures
import numpy as np
import pytest

from glow.evaluation.measures import dcg
from glow.index import DEFAULT_FUSION, Ranking
from glow_index_builder.versions.tuning import Candidates, ndcg, settings, tune

DOCUMENTS = 40


def query(relevant: dict[int, int], good_part: str | None, seed: int) -> Candidates:
    """A query whose relevant documents one part ranks first, while the other ranks at random."""
    generator = np.random.default_rng(seed)
    parts: dict[str, Ranking] = {}
    scores: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    for name in ("dense", "lexical"):
        drawn = generator.random(DOCUMENTS).astype(np.float32) * 0.5
        if name == good_part:
            drawn[list(relevant)] += 0.5
        ranked = np.argsort(-drawn, kind="stable")
        scores[name], parts[name] = drawn, (drawn[ranked], ranked)
    return Candidates(
        parts["dense"],
        parts["lexical"],
        np.arange(DOCUMENTS),
        scores["dense"],
        scores["lexical"],
        1.0,
        relevant,
        dcg(sorted(relevant.values(), reverse=True)[:10]),
    )


def queries(good_part: str | None, count: int = 60) -> list[Candidates]:
    generator = np.random.default_rng(7)
    return [
        query({int(row): 1 for row in generator.choice(DOCUMENTS, 3, replace=False)}, good_part, seed)
        for seed in range(count)
    ]


@pytest.mark.parametrize("part", ["dense", "lexical"])
def test_the_part_that_ranks_well_gets_the_weight(part: str) -> None:
    tuned = tune(queries(part), None)
    weights = tuned.fusion.weights.model_dump()
    assert weights[part] > 3 * min(weights.values())
    assert max(tuned.dense, tuned.lexical) == pytest.approx(1.0)
    assert tuned.fitted == pytest.approx(1.0)
    assert tuned.validated == pytest.approx(1.0, abs=0.01)
    assert tuned.gain == pytest.approx(tuned.validated - tuned.default)
    assert tuned.low <= tuned.gain <= tuned.high
    if part == "lexical":  # the default goes by the vectors, which are wrong here
        assert tuned.low > 0.05


def test_where_nothing_can_be_learned_the_gain_is_not_told_from_none() -> None:
    tuned = tune(queries(None, count=25), None)
    assert tuned.fitted >= tuned.default  # the best of many settings looks better than it is
    assert tuned.low < 0 < tuned.high
    assert tuned.validated < tuned.fitted


def test_of_equals_the_default_stays() -> None:
    alike = [query({}, None, seed) for seed in range(6)]
    tuned = tune(alike, None)
    assert tuned.fusion == DEFAULT_FUSION == settings()[0]
    assert (tuned.gain, tuned.low, tuned.high) == (0.0, 0.0, 0.0)


def test_the_same_queries_give_the_same_figures() -> None:
    some = queries("dense", 20)
    assert tune(some, None, seed=3) == tune(some, None, seed=3)


def test_ndcg_is_that_of_ir_measures() -> None:
    """The reference, graded and with more relevant documents than the cut-off holds."""
    for seed in range(10):
        generator = np.random.default_rng(seed)
        count = int(generator.integers(1, 15))
        rows = generator.choice(DOCUMENTS, count, replace=False).tolist()
        some = query({row: int(generator.integers(1, 4)) for row in rows}, None, seed)
        ranked = some.dense[1]
        qrels = [ir_measures.Qrel("q", str(row), grade) for row, grade in some.grades.items()]
        run = [
            ir_measures.ScoredDoc("q", str(row), -float(place)) for place, row in enumerate(ranked.tolist())
        ]
        expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)
        assert ndcg(ranked, some) == pytest.approx(expected[ir_measures.nDCG @ 10], abs=1e-9)
