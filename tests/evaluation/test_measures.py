"""Measures of hand-made runs, and of empty, partial and unjudged ones."""

import math

import pytest

from glow.errors import ConfigError, InputError
from glow.evaluation import DEFAULT_MEASURES, Run, evaluate
from glow.evaluation.measures import check_measures
from glow.records import Hit, Qrel

QRELS = [
    Qrel("q1", "d1", 3),
    Qrel("q1", "d2", 1),
    Qrel("q1", "d3", 0),
    Qrel("q2", "d4", 1),
    Qrel("q3", "d5", 0),  # q3 has no relevant document
]


def made(**rankings: list[str]) -> Run:
    """A run from rankings; scores fall with the rank."""
    return {
        query: [Hit(document, 1.0 - 0.1 * rank) for rank, document in enumerate(ranking)]
        for query, ranking in rankings.items()
    }


RUN = made(q1=["d3", "d2", "d1"], q2=["d9", "d8", "d7", "d4"], q3=["d5"])


def test_known_values_of_a_hand_made_run() -> None:
    found = evaluate(RUN, QRELS, ["RR@10", "R@2", "P@2", "nDCG@10", "Success@1", "NCG@2"])
    dcg = 1 / math.log2(3) + 3 / math.log2(4)
    ideal = 3 + 1 / math.log2(3)
    expected = {
        "RR@10": [1 / 2, 1 / 4, 0],
        "R@2": [1 / 2, 0, 0],
        "P@2": [1 / 2, 0, 0],
        "nDCG@10": [dcg / ideal, 1 / math.log2(5), 0],
        "Success@1": [0, 0, 0],
        "NCG@2": [1 / 4, 0, 0],
    }
    assert found.queries == ("q1", "q2", "q3")
    assert list(found.values) == list(expected)
    for name, values in expected.items():
        assert found.values[name].tolist() == pytest.approx(values, abs=1e-9), name
        assert found.means[name] == pytest.approx(sum(values) / 3, abs=1e-9), name
    assert found.per_query["RR@10"] == pytest.approx({"q1": 0.5, "q2": 0.25, "q3": 0.0})


def test_rel_applies_to_rr_r_p_and_success_but_not_to_ndcg_and_ncg() -> None:
    names = ["RR@10", "R@3", "P@3", "Success@2", "nDCG@10", "NCG@2"]
    one, two = evaluate(RUN, QRELS, names, rel=1), evaluate(RUN, QRELS, names, rel=2)
    assert [two.values[name][0] for name in names[:4]] == pytest.approx([1 / 3, 1.0, 1 / 3, 0.0])
    assert [one.values[name][0] for name in names[:4]] == pytest.approx([1 / 2, 1.0, 2 / 3, 1.0])
    for name in names[4:]:
        assert two.values[name].tolist() == one.values[name].tolist()
    assert two.values["RR@10"][1] == 0.0  # grade 1 is no longer relevant


def test_a_measure_that_names_its_own_level_keeps_it() -> None:
    assert evaluate(RUN, QRELS, ["RR(rel=1)@10"], rel=2).values["RR(rel=1)@10"][0] == pytest.approx(0.5)


def test_names_stay_as_they_were_given_whatever_rel_is() -> None:
    assert list(evaluate(RUN, QRELS, rel=2).values) == list(DEFAULT_MEASURES)


@pytest.mark.parametrize(
    "run", [{}, made(q1=[]), made(unjudged=["d1"])], ids=["empty", "no hits", "unjudged"]
)
def test_a_run_without_answers_scores_0_over_all_judged_queries(run: Run) -> None:
    found = evaluate(run, QRELS)
    assert found.queries == ("q1", "q2", "q3")
    assert set(found.means.values()) == {0.0}


def test_a_partial_run_is_averaged_over_every_judged_query() -> None:
    found = evaluate(made(q1=["d1"], stranger=["d1"]), QRELS, ["RR@10"])
    assert found.values["RR@10"].tolist() == [1.0, 0.0, 0.0]
    assert found.means["RR@10"] == pytest.approx(1 / 3)


def test_unjudged_documents_count_as_not_relevant() -> None:
    found = evaluate(made(q1=["x", "y", "d1"]), QRELS, ["RR@10", "NCG@3"])
    assert found.values["RR@10"][0] == pytest.approx(1 / 3)
    assert found.values["NCG@3"][0] == pytest.approx(3 / 4)


def test_equal_scores_keep_the_order_of_the_retriever() -> None:
    for ranking in (["d1", "x"], ["x", "d1"]):
        run = {"q1": [Hit(document, 1.0) for document in ranking]}
        assert evaluate(run, QRELS, ["RR@10"]).values["RR@10"][0] == 1 / (ranking.index("d1") + 1)


def test_our_ncg_agrees_with_ndcg_where_both_are_perfect() -> None:
    perfect = made(q1=["d1", "d2"], q2=["d4"])
    found = evaluate(perfect, QRELS, ["NCG@10", "nDCG@10"])
    assert found.values["NCG@10"].tolist() == pytest.approx([1, 1, 0])
    assert found.values["nDCG@10"].tolist() == pytest.approx([1, 1, 0])


def test_empty_judgements_are_refused() -> None:
    with pytest.raises(InputError, match="qrels are empty"):
        evaluate(RUN, [])


def test_two_grades_for_one_document_are_refused() -> None:
    with pytest.raises(InputError, match="q1 grades document d1 as 3 and as 0"):
        evaluate(RUN, [*QRELS, Qrel("q1", "d1", 0)])
    assert evaluate(RUN, [*QRELS, Qrel("q1", "d1", 3)]).queries == ("q1", "q2", "q3")


@pytest.mark.parametrize("name", ["nDCG@", "NCG@0", "NCG", "NoSuch@10", "__import__('os')", ""])
def test_an_unknown_measure_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown measure"):
        check_measures([name], rel=1)


def test_a_cutoff_deeper_than_the_run_is_refused() -> None:
    check_measures(["R@100", "NCG@50", "AP"], rel=1, depth=100)
    for name in ("R@101", "NCG@101"):
        with pytest.raises(ConfigError, match="looks at 101 hits, and the run holds 100"):
            check_measures([name], rel=1, depth=100)


def test_a_rel_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="--rel"):
        check_measures(["RR@10"], rel=0)
