"""Measures of hand-made runs, and of empty, partial and unjudged ones."""

import math

import pytest

from glow.errors import ConfigError, InputError
from glow.evaluation import DEFAULT_MEASURES, MEASURE_SETS, Run, evaluate
from glow.evaluation.measures import check_measures, measure_names
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
    expected = {
        "RR@10": [1 / 2, 1 / 4, 0],
        "R@2": [1 / 2, 0, 0],
        "P@2": [1 / 2, 0, 0],
        "nDCG@10": [(1 / math.log2(3) + 3 / math.log2(4)) / (3 + 1 / math.log2(3)), 1 / math.log2(5), 0],
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
    found = evaluate(made(q1=["d1", "d2"], q2=["d4"]), QRELS, ["NCG@10", "nDCG@10"])
    assert found.values["NCG@10"].tolist() == pytest.approx([1, 1, 0])
    assert found.values["nDCG@10"].tolist() == pytest.approx([1, 1, 0])


def test_empty_judgements_are_refused() -> None:
    with pytest.raises(InputError, match="qrels are empty"):
        evaluate(RUN, [])


def test_two_grades_for_one_document_are_refused() -> None:
    with pytest.raises(InputError, match="q1 grades document d1 as 3 and as 0"):
        evaluate(RUN, [*QRELS, Qrel("q1", "d1", 0)])
    assert evaluate(RUN, [*QRELS, Qrel("q1", "d1", 3)]).queries == ("q1", "q2", "q3")


@pytest.mark.parametrize(
    "name", ["nDCG@", "NCG@0", "NCG", "ERR(g_max=0)@20", "NoSuch@10", "__import__('os')", "Compat@10", ""]
)
def test_an_unknown_measure_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown measure"):
        check_measures([name], rel=1)


@pytest.mark.parametrize("name", ["ERR", "ERR@0", "nDCG(dcg='exp-log2')@10", "alpha_nDCG@20"])
def test_what_the_library_would_start_another_program_for_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"needs a program that is not installed; try .*ERR@20"):
        check_measures([name], rel=1)


def test_the_measures_of_the_papers_on_a_hand_made_run() -> None:
    """q1 has grades 3 and 1 at ranks 3 and 2, q2 grade 1 at rank 4, q3 nothing."""
    dcg, ideal = 1 / math.log2(3) + 3 / math.log2(4), 3 + 1 / math.log2(3)
    expected = {
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
    found = evaluate(RUN, QRELS, measure_names(["papers"]))
    assert list(found.values) == list(expected) == list(MEASURE_SETS["papers"])
    for name, values in expected.items():
        assert found.values[name].tolist() == pytest.approx([*values, 0], abs=1e-9), name


def test_cut_offs_of_rr_10_and_20_differ() -> None:
    found = evaluate(made(q2=[*(f"x{n}" for n in range(14)), "d4"]), QRELS, ["RR@10", "RR@20"])
    assert found.per_query["RR@10"]["q2"] == 0.0
    assert found.per_query["RR@20"]["q2"] == pytest.approx(1 / 15)


def test_err_takes_its_scale_from_its_name_and_ignores_rel() -> None:
    found = evaluate(made(q2=["d4"]), QRELS, ["ERR@20", "ERR(g_max=3)@20"], rel=2)
    assert [values[1] for values in found.values.values()] == [1 / 16, 1 / 8]
    with pytest.raises(InputError, match="use ERR"):
        evaluate(RUN, QRELS, ["ERR(g_max=2)@20"])


def test_names_are_split_and_sets_are_opened_once() -> None:
    assert measure_names(["RR@10 P@5", "RR@10"]) == ["RR@10", "P@5"]
    assert measure_names(["P@5 papers"]) == ["P@5", *MEASURE_SETS["papers"]]


def test_a_cutoff_deeper_than_the_run_is_refused() -> None:
    check_measures(["R@100", "NCG@50", "ERR@20", "AP"], rel=1, depth=100)
    for name in ("R@101", "NCG@101", "ERR@101"):
        with pytest.raises(ConfigError, match="needs 101 hits, and the run holds 100"):
            check_measures([name], rel=1, depth=100)


def test_a_rel_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="--rel"):
        check_measures(["RR@10"], rel=0)
