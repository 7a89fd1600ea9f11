"""Paired comparison: known answers where there is one, sanity where there is chance; and its page in Markdown."""

import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import InputError
from glow.evaluation import Evaluation, compare, compare_all, comparison, holm, paired_t_test
from glow.evaluation.report import comparison_markdown, mark, markdown_table

ROOT = Path(__file__).parents[2]


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
    rounds = (generator.normal(0, 1, 40) for _ in range(300))
    p_values = [
        compare(np.zeros(40), values, samples=500, seed=seed).p_value for seed, values in enumerate(rounds)
    ]
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.09


def test_the_seed_fixes_the_figures_and_blocks_do_not_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(6).random((2, 30))
    found = compare(a, b, samples=1000, seed=7)
    assert compare(a, b, samples=1000, seed=7) == found
    assert compare(a, b, samples=1000, seed=8) != found
    monkeypatch.setattr(comparison, "BLOCK_DRAWS", 30 * 64)
    assert compare(a, b, samples=1000, seed=7) == found


def test_a_single_query_is_no_evidence_and_none_is_refused() -> None:
    found = compare(np.array([0.0]), np.array([1.0]))
    assert (found.low, found.high, found.p_value) == (1.0, 1.0, 1.0)
    for a, b in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(InputError, match="the same queries"):
            compare(np.array(a), np.array(b))
    with pytest.raises(InputError, match="samples"):
        compare(np.zeros(2), np.zeros(2), samples=0)


def test_the_t_test_goes_with_the_randomisation_test() -> None:
    a, b = np.random.default_rng(9).normal(0, 1, (2, 400))
    queries = tuple(map(str, range(400)))
    one, other = (Evaluation(queries, {"m": values}) for values in (a, b + 0.15))
    found = compare_all(one, [other])[0]["m"]
    assert (found.p_value, found.t_p_value) == (compare(a, b + 0.15).p_value, paired_t_test(b + 0.15 - a))
    assert found.t_p_value == pytest.approx(found.p_value, abs=0.01)
    assert (found.p_holm, found.t_p_holm) == (found.p_value, found.t_p_value)  # one comparison alone


def test_students_own_example_and_what_admits_no_doubt() -> None:
    """Hours of sleep that ten patients gained by one drug over another (Student 1908, Biometrika 6)."""
    gained = np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert paired_t_test(gained) == pytest.approx(0.00283289, rel=1e-5)  # t 4.0621, 9 degrees of freedom
    assert paired_t_test(-gained) == paired_t_test(gained)
    for no_evidence in (np.zeros(5), np.array([1.0]), np.array([1.0, -1.0])):
        assert paired_t_test(no_evidence) == 1.0
    assert paired_t_test(np.full(5, 0.5)) == 0.0


def test_the_gate_compares_without_scipy() -> None:
    script = (
        "import sys; sys.modules['scipy'] = None; import numpy as np; from glow.evaluation import compare\n"
        "compare(np.zeros(3), np.ones(3), 10)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_holm_on_a_worked_example() -> None:
    """.005 x 4, .01 x 3, .03 x 2, and .04 x 1 which may not fall below its smaller neighbour's .06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    pairs = zip(p_values, corrected, strict=True)
    assert all(p <= found <= min(p * len(p_values), 1.0) for p, found in pairs)
    ranked = [found for _, found in sorted(zip(p_values, corrected, strict=True))]
    assert ranked == sorted(ranked)


def test_several_systems_are_corrected_over_all_systems_and_measures() -> None:
    rows = np.random.default_rng(10).random((6, 40))
    names = tuple(map(str, range(40)))
    baseline, one, two = (
        Evaluation(names, {"RR@10": rows[i] + 0.1 * i, "P@5": rows[i + 3]}) for i in range(3)
    )
    found = compare_all(baseline, [one, two], samples=500, seed=3)
    assert [list(item) for item in found] == [["RR@10", "P@5"]] * 2
    every = [item for system in found for item in system.values()]
    assert [item.p_holm for item in every] == holm([item.p_value for item in every])
    assert [item.t_p_holm for item in every] == holm([item.t_p_value for item in every])
    alone = compare(baseline.values["P@5"], two.values["P@5"], 500, 3)
    assert found[1]["P@5"].p_value == alone.p_value  # the others change only the correction
    assert any(item.p_holm > item.p_value for item in every)
    with pytest.raises(InputError, match="the same queries in all runs"):
        compare_all(baseline, [Evaluation(names[::-1], one.values)])


A, B = (Evaluation(("a", "b"), {"m": np.array(values)}) for values in ([0.0, 0.5], [0.5, 1.0]))
ONE = compare_all(A, [B], samples=10)[0]["m"]


@pytest.mark.parametrize(
    ("difference", "p", "expected"),
    [(0.1, 0.051, ""), (0.1, 0.05, "▲"), (-0.1, 0.011, "▼"), (0.1, 0.01, "▲▲"), (-0.1, 0.0, "▼▼")],
)
def test_marks_follow_the_corrected_value_of_the_test(difference: float, p: float, expected: str) -> None:
    item = replace(ONE, difference=difference, p_value=0.0, t_p_value=0.0, p_holm=p, t_p_holm=1.0)
    assert mark(item, "randomisation") == expected
    assert mark(item, "t") == ""
    assert mark(replace(item, p_holm=1.0, t_p_holm=p), "t") == expected


def test_a_table_is_aligned_and_its_cells_cannot_break_it() -> None:
    assert markdown_table(["a", "b"], [["x|y\nz", "1"]]) == "| a | b |\n| --- | ---: |\n| x\\|y z | 1 |\n"


def test_systems_by_measures_then_each_difference_then_what_the_marks_mean() -> None:
    better = replace(ONE, p_holm=0.02, p_value=0.00001)
    lines = comparison_markdown(
        "base", {"one": {"RR@10": better, "P@5": ONE}, "two": {"RR@10": ONE, "P@5": ONE}}, "t"
    ).splitlines()
    head = "| system | RR@10 | P@5 |", "| --- | ---: | ---: |", "| base (baseline) | 0.2500 | 0.2500 |"
    assert tuple(lines[:3]) == head
    assert lines[3] == "| one | 0.7500 ▲▲ | 0.7500 ▲▲ |"  # the t-test of two equal gains leaves no doubt
    assert "| one | RR@10 | +0.5000 | +0.5000 to +0.5000 | < .0001 | 0.0200 | < .0001 | < .0001 |" in lines
    assert sum(line.startswith(("| one |", "| two |")) for line in lines) == 6
    assert "2 queries. ▲ better, ▼ worse than base: t-test" in lines[-1]
    assert "over 4 comparisons;" in lines[-1]
    page = comparison_markdown("base", {"one": {"RR@10": ONE}}, "randomisation")
    assert "randomisation test, two-sided" in page and "over 1 comparison;" in page
