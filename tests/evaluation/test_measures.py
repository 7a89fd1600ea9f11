"""Measures against values worked out by hand, of whole runs and of single queries; and queries apart that training never showed."""

import math
from fractions import Fraction

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError, InputError
from glow.evaluation import DEFAULT_MEASURES, MEASURE_SETS, Run, err, evaluate, ncg, unseen_queries
from glow.evaluation.measures import check_measures, measure_names, ndcg
from glow.records import Hit, Qrel

QRELS = [
    Qrel("q1", "d1", 3),
    Qrel("q1", "d2", 1),
    Qrel("q1", "d3", 0),
    Qrel("q2", "d4", 1),
    Qrel("q3", "d5", 0),  # q3 has no relevant document
]


def run_of(**rankings: list[str]) -> Run:
    """A run from rankings; scores fall with the rank."""
    return {
        query: [Hit(document, 1.0 - 0.1 * rank) for rank, document in enumerate(ranking)]
        for query, ranking in rankings.items()
    }


RUN = run_of(q1=["d3", "d2", "d1"], q2=["d9", "d8", "d7", "d4"], q3=["d5"])


def test_known_values_of_a_hand_made_run() -> None:
    """q1 has grades 3 and 1 at ranks 3 and 2, q2 grade 1 at rank 4, q3 nothing."""
    dcg, ideal = 1 / math.log2(3) + 3 / math.log2(4), 3 + 1 / math.log2(3)
    expected = {
        "R@2": [1 / 2, 0],
        "P@2": [1 / 2, 0],
        "Success@1": [0, 0],
        "NCG@2": [1 / 4, 0],
        "RR@10": [1 / 2, 1 / 4],
        "RR@20": [1 / 2, 1 / 4],
        "nDCG@1": [0, 0],
        "nDCG@3": [dcg / ideal, 0],
        "nDCG@10": [dcg / ideal, 1 / math.log2(5)],
        "NCG@10": [1, 1],
        "NCG@20": [1, 1],
        "NCG@50": [1, 1],
        "R@100": [1, 1],
        "P@20": [2 / 20, 1 / 20],
        "ERR@20": [(1 / 16) / 2 + (15 / 16) * (7 / 16) / 3, (1 / 16) / 4],
    }
    evaluation = evaluate(RUN, QRELS, measure_names(["R@2 P@2 R@2", "Success@1", "NCG@2 papers"]))
    assert evaluation.queries == ("q1", "q2", "q3")
    assert list(evaluation.values) == list(expected)
    assert list(expected)[4:] == list(MEASURE_SETS["papers"])
    for name, values in expected.items():
        assert evaluation.values[name].tolist() == pytest.approx([*values, 0], abs=1e-9), name
        assert evaluation.means[name] == pytest.approx(sum(values) / 3, abs=1e-9), name
    assert evaluation.per_query["RR@10"] == pytest.approx({"q1": 0.5, "q2": 0.25, "q3": 0.0})


def test_rel_applies_to_rr_r_p_and_success_but_not_to_ndcg_and_ncg() -> None:
    names = ["RR@10", "R@3", "P@3", "Success@2", "nDCG@10", "NCG@2", "RR(rel=1)@10"]
    one, two = evaluate(RUN, QRELS, names, rel=1), evaluate(RUN, QRELS, names, rel=2)
    assert list(two.values) == names
    assert [two.values[name][0] for name in names[:4]] == pytest.approx([1 / 3, 1.0, 1 / 3, 0.0])
    assert [one.values[name][0] for name in names[:4]] == pytest.approx([1 / 2, 1.0, 2 / 3, 1.0])
    for name in names[4:]:  # the last names its own level
        assert two.values[name].tolist() == one.values[name].tolist()
    assert two.values["RR@10"][1] == 0.0  # grade 1 is no longer relevant


@pytest.mark.parametrize(
    "run", [{}, run_of(q1=[]), run_of(unjudged=["d1"])], ids=["empty", "no hits", "unjudged"]
)
def test_a_run_without_answers_scores_0_over_all_judged_queries(run: Run) -> None:
    evaluation = evaluate(run, QRELS)
    assert evaluation.queries == ("q1", "q2", "q3")
    assert evaluation.means == dict.fromkeys(DEFAULT_MEASURES, 0.0)


def test_a_partial_run_is_averaged_over_every_judged_query_and_unjudged_hits_are_not_relevant() -> None:
    evaluation = evaluate(run_of(q1=["x", "y", "d1"], stranger=["d1"]), QRELS, ["RR@10", "NCG@3"])
    assert evaluation.values["RR@10"].tolist() == pytest.approx([1 / 3, 0.0, 0.0])
    assert evaluation.means["RR@10"] == pytest.approx(1 / 9)
    assert evaluation.values["NCG@3"][0] == pytest.approx(3 / 4)


def test_equal_scores_keep_the_order_of_the_retriever() -> None:
    for ranking in (["d1", "x"], ["x", "d1"]):
        run = {"q1": [Hit(document, 1.0) for document in ranking]}
        assert evaluate(run, QRELS, ["RR@10"]).values["RR@10"][0] == 1 / (ranking.index("d1") + 1)


def test_judgments_that_are_empty_or_contradict_are_refused() -> None:
    with pytest.raises(InputError, match="qrels are empty"):
        evaluate(RUN, [])
    with pytest.raises(InputError, match="q1 grades document d1 as 3 and as 0"):
        evaluate(RUN, [*QRELS, Qrel("q1", "d1", 0)])
    assert evaluate(RUN, [*QRELS, Qrel("q1", "d1", 3)]).queries == ("q1", "q2", "q3")


UNKNOWN, PROGRAM = "unknown measure", r"needs a program that is not installed; try .*ERR@20"
"""The library would start gdeval for the latter."""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, UNKNOWN) for name in ("nDCG@", "NCG@0", "NCG", "ERR(g_max=0)@20", "NoSuch@10", "")),
        ("__import__('os')", UNKNOWN),
        *((name, PROGRAM) for name in ("ERR", "ERR@0", "nDCG(dcg='exp-log2')@10", "alpha_nDCG@20")),
        *((name, "needs 101 hits, and the run holds 100") for name in ("R@101", "NCG@101", "ERR@101")),
    ],
)
def test_a_measure_that_cannot_be_computed_is_refused(name: str, message: str) -> None:
    check_measures(["R@100", "NCG@50", "ERR@20", "AP"], rel=1, depth=100)
    with pytest.raises(ConfigError, match=message):
        check_measures([name], rel=1, depth=100)


def test_err_takes_its_scale_from_its_name_and_ignores_rel() -> None:
    evaluation = evaluate(run_of(q2=["d4"]), QRELS, ["ERR@20", "ERR(g_max=3)@20"], rel=2)
    assert [values[1] for values in evaluation.values.values()] == [1 / 16, 1 / 8]
    with pytest.raises(InputError, match=r"grades up to 2, found grade 3: use ERR\(g_max=3\)@20"):
        evaluate(RUN, QRELS, ["ERR(g_max=2)@20"])


GRADES = {"perfect": 4, "excellent": 3, "good": 2, "fair": 1, "bad": 0, "spam": -2}


def test_a_worked_example_of_err() -> None:
    """R = 7/16, 3/16, 0, 15/16: a user who continues past a document multiplies by one minus its R."""
    expected = (
        Fraction(7, 16)
        + Fraction(1, 2) * Fraction(9, 16) * Fraction(3, 16)
        + Fraction(1, 4) * Fraction(9, 16) * Fraction(13, 16) * Fraction(15, 16)
    )
    assert err(["excellent", "good", "bad", "perfect"], GRADES, 20) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("ranking", "k", "g_max", "expected"),
    [
        (["fair"], 20, 4, 1 / 16),
        (["fair"], 20, 1, 1 / 2),
        (["bad", "unjudged", "fair"], 20, 1, 1 / 6),
        (["bad", "unjudged", "fair"], 2, 1, 0.0),
        (["spam", "fair"], 20, 1, 1 / 4),
        (["fair", "fair"], 20, 1, 1 / 2),  # a document that comes again satisfies nobody
        (["fair", "fair", "good"], 20, 2, 1 / 4 + 3 / 4 * 3 / 4 / 3),  # but takes its place
        ([], 20, 4, 0.0),
    ],
)
def test_err_by_rank_cutoff_and_scale(ranking: list[str], k: int, g_max: int, expected: float) -> None:
    grades = {"good": 2, "fair": 1, "bad": 0, "spam": -2}
    grades = {document: grade for document, grade in grades.items() if grade <= g_max}
    assert err(ranking, grades, k, g_max) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("ranking", "k", "expected"),
    [  # the ideal gain is 4, 7, 9, 10, and 10 from there
        (["fair", "perfect", "unjudged"], 1, 1 / 4),
        (["fair", "perfect", "unjudged"], 2, 5 / 7),
        (["perfect", "unjudged", "fair"], 3, 5 / 9),  # in any order
        (["good", "bad", "fair", "perfect", "excellent"], 10, 1.0),
        (["fair", "fair", "fair"], 3, 1 / 9),
        (["spam", "perfect"], 2, 4 / 7),
        (["bad", "unjudged"], 10, 0.0),
        ([], 10, 0.0),
    ],
)
def test_ncg_is_the_share_of_the_best_gain(ranking: list[str], k: int, expected: float) -> None:
    """GLOW Eq. 11-12."""
    assert ncg(ranking, GRADES, k) == pytest.approx(expected, abs=1e-12)
    assert ncg(ranking, {"bad": 0}, k) == ncg(ranking, {}, k) == 0.0  # without a relevant document


@pytest.mark.parametrize(
    "measure", [lambda: ncg([], {}, 0), lambda: err([], {}, 0), lambda: err([], {}, 9, 0)]
)
def test_a_cutoff_and_a_scale_below_1_are_refused(measure: object) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        measure()


@given(
    st.lists(st.integers(0, 30), unique=True).map(lambda numbers: [str(number) for number in numbers]),
    st.dictionaries(st.integers(0, 30).map(str), st.integers(-2, 4)),
    st.integers(1, 40),
)
def test_values_lie_between_0_and_1_and_a_better_document_first_never_harms(
    ranking: list[str], grades: dict[str, int], k: int
) -> None:
    best = sorted(ranking, key=lambda document: -grades.get(document, 0))
    for measure in (err, ncg, ndcg):
        assert 0.0 <= measure(ranking, grades, k) <= measure(best, grades, k) + 1e-12 <= 1.0 + 1e-11


def test_ndcg_is_that_of_ir_measures() -> None:
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
    assert ndcg(["a"], {}, 10) == ndcg(["a"], {"a": 0, "b": -1}, 10) == ndcg([], {"a": 1}, 10) == 0.0


TRAIN = [Qrel("t1", "shown", 1), Qrel("t1", "rejected", 0), Qrel("t2", "also", 1)]
DEV = [
    Qrel("one-shown", "shown", 1),
    Qrel("one-shown", "new", 1),
    Qrel("all-new", "new", 2),
    Qrel("shown-as-bad", "rejected", 1),
    Qrel("bad-is-shown", "also", 1),
    Qrel("bad-is-shown", "new", 2),
    Qrel("nothing", "shown", 0),
]


def test_one_relevant_document_that_training_showed_is_enough_to_be_seen() -> None:
    assert unseen_queries(DEV, TRAIN) == {"all-new", "shown-as-bad", "nothing"}
    assert unseen_queries(DEV, TRAIN, rel=2) == {qrel.query_id for qrel in DEV}  # of the measured split only
    assert unseen_queries([Qrel("q", "shown", 2)], TRAIN, rel=2) == set()
    assert unseen_queries(DEV, [Qrel("t", "shown", 0)]) == {qrel.query_id for qrel in DEV}


def test_an_evaluation_of_some_queries_keeps_order_and_values() -> None:
    run = {"all-new": [Hit("x", 2.0), Hit("new", 1.0)], "shown-as-bad": [Hit("rejected", 1.0)]}
    evaluation = evaluate(run, DEV, ["RR@10"])
    part = evaluation.only(unseen_queries(DEV, TRAIN))
    assert part.queries == ("all-new", "shown-as-bad", "nothing")
    assert part.per_query["RR@10"] == {"all-new": 0.5, "shown-as-bad": 1.0, "nothing": 0.0}
    assert part.means == {"RR@10": 0.5}
    empty = evaluation.only([])
    assert (empty.queries, empty.means, empty.per_query) == ((), {}, {"RR@10": {}})
