"""Markdown: tables that parse, marks that mean what the note says, and no markup of others."""

from dataclasses import replace

import numpy as np
import pytest

from glow.evaluation import Comparison, Evaluation, compare_all
from glow.evaluation.report import comparison_markdown, mark, markdown_table

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


def test_one_comparison_is_no_plural() -> None:
    page = comparison_markdown("base", {"one": {"RR@10": ONE}}, "randomisation")
    assert "randomisation test, two-sided" in page
    assert "over 1 comparison;" in page


def test_comparisons_have_both_tests() -> None:
    assert isinstance(ONE, Comparison)
    assert ONE.by_test("t") == (ONE.t_p_value, ONE.t_p_holm) == (0.0, 0.0)
    assert ONE.by_test("randomisation") == (ONE.p_value, ONE.p_holm)
