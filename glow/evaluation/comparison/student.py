"""The paired t-test, with Student's distribution from its definition, without a statistics package.

The two-sided p-value is I_x(ν/2, 1/2) at x = ν / (ν + t²), where I is the regularized incomplete beta function
(Abramowitz and Stegun 26.7.1 and 26.5.2), here by its continued fraction (26.5.8) with Lentz's method.

    n   queries     ν   degrees of freedom, n - 1
"""

from math import exp, inf, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["paired_t_test", "t_tail"]

# Even for 10^7 degrees of freedom the fraction converges within a few hundred steps.
MAX_STEPS = 10_000
PRECISION = 1e-15
TINY = 1e-300


def paired_t_test(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the hypothesis that the mean difference is 0.

    Args:
        differences: float64 [n].

    Returns:
        In [0, 1]. It is 1 for a single query, which is no evidence, and if all differences are 0. It is 0 if all are
        equal and not 0.
    """
    n = len(differences)
    mean = float(differences.mean())
    if n < 2 or mean == 0.0:
        return 1.0
    error = float(differences.std(ddof=1)) / sqrt(n)
    return t_tail(mean / error if error > 0.0 else inf, n - 1)


def t_tail(t: float, nu: float) -> float:
    """Two-sided probability that Student's t with ν degrees of freedom is as far from 0 as `t`.

    Args:
        t: any number, including infinities.
        nu: ν > 0.
    """
    square = t * t
    if square == inf:
        return 0.0
    total = nu + square
    return _incomplete_beta(nu / 2, 0.5, nu / total, square / total)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b) with `rest` = 1 - x, a separate argument because subtraction would lose digits."""
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(rest))
    # The fraction converges fast below the mean; above it, use the symmetry I_x(a, b) = 1 - I_{1-x}(b, a).
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, rest) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), evaluated from the front (modified Lentz)."""
    c, d = 1.0, _inverse(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, MAX_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = _inverse(1.0 + numerator * d)
            c = 1.0 + numerator / c
            c = c if abs(c) > TINY else TINY
            step = c * d
            value *= step
        if abs(step - 1.0) < PRECISION:
            break
    return value


def _inverse(value: float) -> float:
    return 1.0 / (value if abs(value) > TINY else TINY)
