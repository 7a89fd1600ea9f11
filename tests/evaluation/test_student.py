"""The paired t-test against tables, closed forms and a published example."""

import subprocess
import sys
from math import atan, inf, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.evaluation import paired_t_test
from glow.evaluation.comparison.student import t_tail

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("t", "nu", "p"),
    [
        (12.7062047362, 1, 0.05),
        (4.3026527297, 2, 0.05),
        (2.2281388520, 10, 0.05),
        (3.1692726726, 10, 0.01),
        (2.0422724563, 30, 0.05),
        (1.9840, 99, 0.050025),
        (1.9599639845, 1e9, 0.05),
        (3.2905267315, 1e9, 0.001),
    ],
)
def test_values_of_the_tables(t: float, nu: float, p: float) -> None:
    assert t_tail(t, nu) == pytest.approx(p, rel=2e-5)
    assert t_tail(-t, nu) == t_tail(t, nu)


@pytest.mark.parametrize("t", [1e-6, 0.1, 0.5, 1.0, 2.0, 7.5, 40.0, 1e4])
def test_one_and_two_degrees_of_freedom_have_closed_forms(t: float) -> None:
    assert t_tail(t, 1) == pytest.approx(2 / pi * atan(1 / t), rel=1e-10)
    assert t_tail(t, 2) == pytest.approx(2 / (sqrt(2 + t * t) * (sqrt(2 + t * t) + t)), rel=1e-10)


def test_the_ends() -> None:
    assert t_tail(0.0, 7) == 1.0
    assert t_tail(inf, 7) == t_tail(1e200, 7) == 0.0


def test_students_own_example() -> None:
    """Hours of sleep that ten patients gained by one drug over another (Student 1908, Biometrika 6)."""
    gained = np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert paired_t_test(gained) == pytest.approx(0.00283289, rel=1e-5)  # t 4.0621, 9 degrees of freedom


def test_what_is_no_evidence_and_what_admits_no_doubt() -> None:
    assert paired_t_test(np.zeros(5)) == 1.0
    assert paired_t_test(np.array([1.0])) == 1.0
    assert paired_t_test(np.array([1.0, -1.0])) == 1.0
    assert paired_t_test(np.full(5, 0.5)) == 0.0


@given(st.floats(0, 60), st.floats(0, 60), st.integers(1, 3000))
def test_farther_from_0_is_never_more_likely(one: float, two: float, nu: int) -> None:
    near, far = sorted((one, two))
    assert 0.0 <= t_tail(far, nu) <= t_tail(near, nu) + 1e-12 <= 1.0 + 1e-12


def test_no_statistics_package_is_loaded() -> None:
    script = (
        "import sys; from glow.evaluation import evaluate, compare_all; from glow.records import Hit, Qrel\n"
        "found = evaluate({'q': [Hit('d', 1.0)]}, [Qrel('q', 'd', 1)], ['RR@10', 'nDCG@10', 'ERR@20'])\n"
        "compare_all(found, [found], 10); assert 'scipy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
