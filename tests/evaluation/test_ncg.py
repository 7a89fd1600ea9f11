"""NCG@k (GLOW Eq. 11-12) against values worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.evaluation import ncg

# Grades 3, 2, 1, 0; the ideal gain is 3 at k = 1, 5 at k = 2 and 6 from k = 3 on.
GRADES = {"perfect": 3, "good": 2, "fair": 1, "bad": 0}


@pytest.mark.parametrize(
    ("ranking", "k", "expected"),
    [
        (["fair", "perfect", "unjudged"], 1, 1 / 3),
        (["fair", "perfect", "unjudged"], 2, 4 / 5),
        (["fair", "perfect", "unjudged"], 3, 4 / 6),
        (["good", "bad", "fair", "perfect"], 10, 1.0),
        (["bad", "unjudged"], 10, 0.0),
        ([], 10, 0.0),
    ],
)
def test_worked_examples(ranking: list[str], k: int, expected: float) -> None:
    assert ncg(ranking, GRADES, k) == pytest.approx(expected, abs=1e-12)


def test_the_order_within_the_first_k_does_not_matter() -> None:
    assert ncg(["bad", "good", "perfect"], GRADES, 3) == ncg(["perfect", "good", "bad"], GRADES, 3)


def test_a_query_without_a_relevant_document_scores_0() -> None:
    assert ncg(["bad"], {"bad": 0}, 10) == 0.0
    assert ncg(["bad"], {}, 10) == 0.0


def test_negative_grades_gain_nothing_and_cost_nothing() -> None:
    assert ncg(["spam", "good"], {"spam": -2, "good": 2}, 2) == 1.0


def test_a_document_that_comes_twice_counts_once() -> None:
    assert ncg(["fair", "fair", "fair"], GRADES, 3) == pytest.approx(1 / 6)


def test_k_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ncg([], GRADES, 0)


@given(
    st.lists(st.integers(0, 30), unique=True).map(lambda numbers: [str(number) for number in numbers]),
    st.dictionaries(st.integers(0, 30).map(str), st.integers(-2, 4)),
    st.integers(1, 40),
)
def test_ncg_lies_between_0_and_1(ranking: list[str], grades: dict[str, int], k: int) -> None:
    assert 0.0 <= ncg(ranking, grades, k) <= 1.0
