"""Paired comparison of runs: tests whether a difference is more than chance in the choice of queries.

All methods use the difference of each query's values, because hard queries are hard for both runs. Many comparisons
find some differences by chance alone. Holm's correction keeps the probability of even one such find at the level
(S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979).

    n   queries     s   samples
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError
from glow.evaluation.comparison.student import paired_t_test
from glow.evaluation.measures import Evaluation

__all__ = ["SAMPLES", "Comparison", "Test", "compare", "compare_all", "holm"]

Test = Literal["randomisation", "t"]

SAMPLES = 10_000
LEVEL = 0.95
# Limits the memory of one block of samples: 4 million draws of 8 bytes.
BLOCK_DRAWS = 4_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of run B from run A in one measure.

    Attributes:
        queries: n.
        mean_a, mean_b: means over the queries.
        difference: mean_b - mean_a.
        low, high: ends of the 95 % interval of the difference (percentile bootstrap over queries).
        p_value: two-sided paired randomization test, in (0, 1]; 1 if the runs are equal.
        t_p_value: two-sided paired t-test, in [0, 1]; 1 if the runs are equal.
        p_holm, t_p_holm: the same, corrected for all comparisons made together.
    """

    queries: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_value: float
    t_p_value: float
    p_holm: float
    t_p_holm: float

    def by_test(self, test: Test) -> tuple[float, float]:
        """The p-value of one test, plain and corrected."""
        return (self.t_p_value, self.t_p_holm) if test == "t" else (self.p_value, self.p_holm)


def compare(
    a: NDArray[np.float64], b: NDArray[np.float64], samples: int = SAMPLES, seed: int = 0
) -> Comparison:
    """Compares two runs over the same queries, as a single comparison.

    Args:
        a: float64 [n], run A's value of each query.
        b: float64 [n], run B's, in the same order of queries.
        samples: resamples of each method, >= 1.
        seed: of both methods; equal seeds give equal figures.

    Raises:
        InputError: if the runs differ in length, or hold no query.
    """
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise InputError(f"expected the same queries in both runs, at least one; found {len(a)} and {len(b)}")
    if samples < 1:
        raise InputError(f"samples must be at least 1, found {samples}")
    differences = b - a
    low, high = _bootstrap(differences, samples, np.random.default_rng(seed))
    p_value = _randomisation(differences, samples, np.random.default_rng(seed))
    t_p_value = paired_t_test(differences)
    means = (float(a.mean()), float(b.mean()), float(differences.mean()))
    return Comparison(len(a), *means, low, high, p_value, t_p_value, p_value, t_p_value)


def compare_all(
    baseline: Evaluation, systems: Sequence[Evaluation], samples: int = SAMPLES, seed: int = 0
) -> list[dict[str, Comparison]]:
    """Compares each of several systems with a baseline in every measure.

    Args:
        baseline: run A.
        systems: each is a run B, with the baseline's queries and measures.
        samples: resamples of each method, >= 1.
        seed: of every comparison, so that one does not depend on the others.

    Returns:
        For each system: measure name -> comparison, corrected over all systems and measures together.

    Raises:
        InputError: if the queries differ, or there are none.
    """
    for system in systems:
        if system.queries != baseline.queries:
            raise InputError("expected the same queries in all runs: measure them by the same qrels")
    found = [
        {
            name: compare(values, system.values[name], samples, seed)
            for name, values in baseline.values.items()
        }
        for system in systems
    ]
    every = [item for comparisons in found for item in comparisons.values()]
    corrected = zip(
        holm([item.p_value for item in every]), holm([item.t_p_value for item in every]), strict=True
    )
    return [
        {name: _corrected(item, *next(corrected)) for name, item in comparisons.items()}
        for comparisons in found
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects m p-values: the i-th smallest times m - i + 1, at least the previous result and at most 1.

    Args:
        p_values: any number, in [0, 1].

    Returns:
        Corrected values in the same order.
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for place, row in enumerate(sorted(range(len(p_values)), key=lambda row: p_values[row])):
        highest = max(highest, p_values[row] * (len(p_values) - place))
        corrected[row] = min(highest, 1.0)
    return corrected


def _corrected(item: Comparison, p_holm: float, t_p_holm: float) -> Comparison:
    return replace(item, p_holm=p_holm, t_p_holm=t_p_holm)


def _bootstrap(
    differences: NDArray[np.float64], samples: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of the mean from s samples of n queries with replacement."""
    n = len(differences)
    means = [differences[generator.integers(0, n, (rows, n))].mean(axis=1) for rows in _blocks(samples, n)]
    tail = (1.0 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1.0 - tail])
    return float(low), float(high)


def _randomisation(differences: NDArray[np.float64], samples: int, generator: np.random.Generator) -> float:
    """Fraction of random sign flips whose mean is at least as far from 0; the actual labels count as one of them."""
    n = len(differences)
    # Flips that differ from the actual mean only by rounding count as equally extreme.
    observed = abs(float(differences.sum())) - 1e-12 * n
    extreme = 1
    for rows in _blocks(samples, n):
        signs = generator.integers(0, 2, (rows, n), np.int8) * 2.0 - 1.0
        extreme += int((np.abs(signs @ differences) >= observed).sum())
    return extreme / (samples + 1)


def _blocks(samples: int, n: int) -> list[int]:
    """Sizes of the blocks in which `samples` rows of n draws are made."""
    size = max(BLOCK_DRAWS // n, 1)
    return [min(size, samples - start) for start in range(0, samples, size)]
