"""Paired comparison of two runs: is a difference more than luck in the choice of queries?

Both methods look at the difference of each query's value, so that hard queries are hard for both runs.

    n   queries     s   samples
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError

__all__ = ["SAMPLES", "Comparison", "compare"]

SAMPLES = 10_000
LEVEL = 0.95
# Bounds the memory of one block of samples, whatever the number of queries: 4 million draws of 8 bytes.
BLOCK_DRAWS = 4_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """How run B differs from run A in one measure.

    Attributes:
        queries: n.
        mean_a, mean_b: means over the queries.
        difference: mean_b - mean_a.
        low, high: ends of the 95 % interval of the difference (percentile bootstrap over queries).
        p_value: two-sided paired randomisation test, in (0, 1]; 1 where the runs are alike.
    """

    queries: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_value: float


def compare(
    a: NDArray[np.float64], b: NDArray[np.float64], samples: int = SAMPLES, seed: int = 0
) -> Comparison:
    """Compares two runs over the same queries.

    Args:
        a: float64 [n], run A's value of each query.
        b: float64 [n], run B's, in the same order of queries.
        samples: resamples of each method, >= 1.
        seed: of both methods; the same seed gives the same figures.

    Raises:
        InputError: the runs differ in length, or hold no query.
    """
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise InputError(f"expected the same queries in both runs, at least one; found {len(a)} and {len(b)}")
    if samples < 1:
        raise InputError(f"samples must be at least 1, found {samples}")
    differences = b - a
    low, high = _bootstrap(differences, samples, np.random.default_rng(seed))
    p_value = _randomisation(differences, samples, np.random.default_rng(seed))
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return Comparison(len(a), mean_a, mean_b, float(differences.mean()), low, high, p_value)


def _bootstrap(
    differences: NDArray[np.float64], samples: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of the mean: n queries are drawn with replacement, s times."""
    n = len(differences)
    means = [differences[generator.integers(0, n, (rows, n))].mean(axis=1) for rows in _blocks(samples, n)]
    tail = (1.0 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1.0 - tail])
    return float(low), float(high)


def _randomisation(differences: NDArray[np.float64], samples: int, generator: np.random.Generator) -> float:
    """Share of random sign flips whose mean is as far from 0; the runs' own labelling counts as one of them."""
    n = len(differences)
    # Flips that differ from the truth only by rounding are as extreme as the truth.
    observed = abs(float(differences.sum())) - 1e-12 * n
    extreme = 1
    for rows in _blocks(samples, n):
        signs = generator.integers(0, 2, (rows, n), np.int8) * 2.0 - 1.0
        extreme += int((np.abs(signs @ differences) >= observed).sum())
    return extreme / (samples + 1)


def _blocks(samples: int, n: int) -> list[int]:
    """Sizes of the blocks that `samples` rows of n draws are made in."""
    size = max(BLOCK_DRAWS // n, 1)
    return [min(size, samples - start) for start in range(0, samples, size)]
