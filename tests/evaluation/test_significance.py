"""Paired comparison: known answers where there is one, sanity where there is chance."""

from itertools import product

import numpy as np
import pytest

from glow.errors import InputError
from glow.evaluation import compare, significance


def test_equal_runs_differ_by_nothing() -> None:
    values = np.random.default_rng(1).random(50)
    found = compare(values, values.copy())
    assert (found.difference, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert found.mean_a == found.mean_b == pytest.approx(values.mean())


def test_a_clear_difference_is_found_and_has_its_sign() -> None:
    generator = np.random.default_rng(2)
    a = generator.random(200)
    b = a + 0.1 + generator.normal(0, 0.05, 200)
    found = compare(a, b)
    assert found.difference == pytest.approx((b - a).mean())
    assert 0.08 < found.low < found.difference < found.high < 0.12
    assert found.p_value < 0.001
    back = compare(b, a)
    assert (back.difference, back.p_value) == (pytest.approx(-found.difference), found.p_value)
    assert back.low == pytest.approx(-found.high, abs=1e-3)


def test_pairing_matters() -> None:
    """A small steady gain over very different queries is clear when paired, and lost when not."""
    generator = np.random.default_rng(3)
    a = generator.random(100)
    b = a + 0.02
    assert compare(a, b).p_value < 0.001
    assert compare(a, generator.permutation(b)).p_value > 0.05


def test_the_interval_is_that_of_the_normal_theory_for_many_queries() -> None:
    differences = np.random.default_rng(4).normal(0.01, 0.2, 2000)
    found = compare(np.zeros(2000), differences)
    half = 1.96 * differences.std() / 2000**0.5
    assert found.low == pytest.approx(differences.mean() - half, abs=0.05 * half)
    assert found.high == pytest.approx(differences.mean() + half, abs=0.05 * half)


def test_the_p_value_is_that_of_all_sign_flips() -> None:
    differences = np.array([0.5, 0.2, -0.1, 0.4, 0.3, -0.2, 0.1, 0.6])
    flips = np.array(list(product([-1, 1], repeat=len(differences)))) @ differences
    exact = (np.abs(flips) >= abs(differences.sum()) - 1e-9).mean()
    found = compare(np.zeros(len(differences)), differences, samples=50_000)
    assert found.p_value == pytest.approx(exact, abs=0.005)


def test_chance_differences_are_called_significant_as_often_as_the_level_says() -> None:
    generator = np.random.default_rng(5)
    p_values = [
        compare(np.zeros(40), generator.normal(0, 1, 40), samples=500, seed=round_).p_value
        for round_ in range(300)
    ]
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.09


def test_the_seed_fixes_the_figures_and_blocks_do_not_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(6).random((2, 30))
    found = compare(a, b, samples=1000, seed=7)
    assert compare(a, b, samples=1000, seed=7) == found
    assert compare(a, b, samples=1000, seed=8) != found
    monkeypatch.setattr(significance, "BLOCK_DRAWS", 30 * 64)
    assert compare(a, b, samples=1000, seed=7) == found


def test_every_query_may_be_drawn() -> None:
    """Of two queries both, one or none is the one that differs: the interval reaches both ends."""
    found = compare(np.zeros(2), np.array([0.0, 1.0]))
    assert (found.low, found.difference, found.high) == (0.0, 0.5, 1.0)


def test_a_single_query_is_no_evidence() -> None:
    found = compare(np.array([0.0]), np.array([1.0]))
    assert (found.low, found.high, found.p_value) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0])])
def test_unpaired_values_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(InputError, match="the same queries"):
        compare(np.array(a), np.array(b))


def test_no_sample_is_refused() -> None:
    with pytest.raises(InputError, match="samples"):
        compare(np.zeros(2), np.zeros(2), samples=0)
