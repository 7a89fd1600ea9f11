"""ERR@k (Chapelle et al. 2009) against values worked out by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import InputError
from glow.evaluation import err

GRADES = {"perfect": 4, "excellent": 3, "good": 2, "fair": 1, "bad": 0}


def test_a_worked_example() -> None:
    """R = 7/16, 3/16, 0, 15/16: who reads on past a document multiplies by one minus its R."""
    ranking = ["excellent", "good", "bad", "perfect"]
    assert (
        Fraction(7, 16)
        + Fraction(1, 2) * Fraction(9, 16) * Fraction(3, 16)
        + Fraction(1, 4) * Fraction(9, 16) * Fraction(13, 16) * Fraction(15, 16)
    ) == Fraction(9787, 16384)
    assert err(ranking, GRADES, 20) == pytest.approx(9787 / 16384, abs=1e-15)


@pytest.mark.parametrize(
    ("ranking", "k", "g_max", "expected"),
    [
        (["fair"], 20, 4, 1 / 16),
        (["fair"], 20, 1, 1 / 2),
        (["bad", "unjudged", "fair"], 20, 1, 1 / 6),
        (["bad", "unjudged", "fair"], 2, 1, 0.0),
        ([], 20, 4, 0.0),
    ],
)
def test_rank_cut_off_and_scale(ranking: list[str], k: int, g_max: int, expected: float) -> None:
    assert err(ranking, {"fair": 1, "bad": 0}, k, g_max) == pytest.approx(expected, abs=1e-15)


def test_twenty_relevant_hits_of_a_binary_scale_reach_what_the_docs_say() -> None:
    names = [str(number) for number in range(20)]
    assert err(names, dict.fromkeys(names, 1), 20) == pytest.approx(0.1761288, abs=1e-7)


def test_a_document_that_comes_again_satisfies_nobody_but_takes_its_place() -> None:
    assert err(["fair", "fair"], GRADES, 20) == 1 / 16
    assert err(["fair", "fair", "good"], GRADES, 20) == pytest.approx(1 / 16 + 15 / 16 * 3 / 16 / 3)


def test_negative_grades_satisfy_nobody() -> None:
    assert err(["spam", "good"], {"spam": -2, "good": 2}, 20) == pytest.approx(3 / 16 / 2)


def test_a_grade_above_the_scale_is_refused_with_the_measure_to_ask_for() -> None:
    with pytest.raises(InputError, match=r"grades up to 3, found grade 4: use ERR\(g_max=4\)@20"):
        err(["fair"], GRADES, 20, g_max=3)


@pytest.mark.parametrize(("k", "g_max"), [(0, 4), (20, 0)])
def test_k_and_scale_below_1_are_refused(k: int, g_max: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        err([], {}, k, g_max)


@given(
    st.lists(st.integers(0, 30), unique=True).map(lambda numbers: [str(number) for number in numbers]),
    st.dictionaries(st.integers(0, 30).map(str), st.integers(-2, 4)),
    st.integers(1, 40),
)
def test_err_lies_between_0_and_1_and_a_better_document_first_never_harms(
    ranking: list[str], grades: dict[str, int], k: int
) -> None:
    found = err(ranking, grades, k)
    assert 0.0 <= found < 1.0
    assert err(sorted(ranking, key=lambda document: -grades.get(document, 0)), grades, k) >= found - 1e-12
