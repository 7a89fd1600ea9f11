"""Paired comparison of runs: tests whether a difference is more than chance in the choice of queries.

All methods use the difference of each query's values, because hard queries are hard for both runs. Many comparisons
find some differences by chance alone. Holm's correction keeps the probability of even one such find at the level
(S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979).

    n   queries     s   samples
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.errors import DependencyError, InputError
from glow.evaluation.measures import Evaluation
from glow.records import Qrel

Test = Literal["randomisation", "t"]

SAMPLES = 10_000
LEVEL = 0.95
# Limits the memory of one block of samples: 4 million draws of 8 bytes.
BLOCK_DRAWS = 4_000_000
# Lowest grade of a positive in training (glow.training.data), independent of the measured split's.
SEEN_GRADE = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of run B from run A in one measure."""

    queries: int  # n
    mean_a: float
    mean_b: float
    difference: float  # mean_b - mean_a
    low: float  # ends of the 95 % interval of the difference (percentile bootstrap over queries)
    high: float
    p_value: float  # two-sided paired randomization test, in (0, 1]; 1 if the runs are equal


@dataclass(frozen=True, slots=True)
class Comparison(Difference):
    """A difference with a second test, and both p-values corrected for all comparisons made together."""

    t_p_value: float  # two-sided paired t-test, in [0, 1]; 1 if the runs are equal
    p_holm: float
    t_p_holm: float

    def by_test(self, test: Test) -> tuple[float, float]:
        """The p-value of one test, plain and corrected."""
        return (self.t_p_value, self.t_p_holm) if test == "t" else (self.p_value, self.p_holm)


def compare(
    a: NDArray[np.float64],  # [n], run A's value of each query
    b: NDArray[np.float64],  # [n], run B's, in the same order of queries
    samples: int = SAMPLES,  # resamples of each method
    seed: int = 0,  # of both methods; equal seeds give equal figures
) -> Difference:
    """Compares two runs over the same queries."""
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise InputError(f"expected the same queries in both runs, at least one; found {len(a)} and {len(b)}")
    if samples < 1:
        raise InputError(f"samples must be at least 1, found {samples}")
    differences = b - a
    low, high = _bootstrap(differences, samples, np.random.default_rng(seed))
    p_value = _randomisation(differences, samples, np.random.default_rng(seed))
    means = (float(a.mean()), float(b.mean()), float(differences.mean()))
    return Difference(len(a), *means, low, high, p_value)


def compare_all(
    baseline: Evaluation, systems: Sequence[Evaluation], samples: int = SAMPLES, seed: int = 0
) -> list[dict[str, Comparison]]:
    """Compares each system with the baseline: measure name -> comparison, corrected over all systems and measures.

    Each comparison starts from the same seed, so that one does not depend on the others.
    """
    for system in systems:
        if system.queries != baseline.queries:
            raise InputError("expected the same queries in all runs: measure them by the same qrels")
    pairs = [(values, system.values[name]) for system in systems for name, values in baseline.values.items()]
    differences = [compare(a, b, samples, seed) for a, b in pairs]
    t_p_values = [paired_t_test(b - a) for a, b in pairs]
    corrected = zip(
        differences,
        t_p_values,
        holm([item.p_value for item in differences]),
        holm(t_p_values),
        strict=True,
    )
    comparisons = (
        Comparison(**asdict(item), t_p_value=t, p_holm=p_holm, t_p_holm=t_p_holm)
        for item, t, p_holm, t_p_holm in corrected
    )
    return [{name: next(comparisons) for name in baseline.values} for _ in systems]


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects m p-values: the i-th smallest times m - i + 1, at least the previous result and at most 1."""
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for place, row in enumerate(sorted(range(len(p_values)), key=lambda row: p_values[row])):
        highest = max(highest, p_values[row] * (len(p_values) - place))
        corrected[row] = min(highest, 1.0)
    return corrected


def paired_t_test(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the hypothesis that the mean of the differences [n] is 0.

    It is 1 for a single query, which is no evidence, and if the mean is 0. It is 0 if all are equal and not 0.
    """
    n = len(differences)
    mean = float(differences.mean())
    if n < 2 or mean == 0.0:
        return 1.0
    error = float(differences.std(ddof=1)) / sqrt(n)
    if error == 0.0:
        return 0.0
    try:
        from scipy.special import stdtr  # of the extra `eval`; the gate compares without it
    except ImportError as missing:
        raise DependencyError(
            f"the t-test needs scipy ({missing}): pip install glow-retrieval[eval]"
        ) from missing
    return float(2.0 * stdtr(n - 1, -abs(mean / error)))


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


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """The values of the queries whose relevant documents are not relevant in another split."""

    split: str
    evaluation: Evaluation


def unseen_queries(qrels: Sequence[Qrel], shown: Sequence[Qrel], rel: int = 1) -> frozenset[str]:
    """Ids of queries without a relevant document that is also relevant (grade >= 1) in `shown`, another split.

    In a click log, most relevant documents of a dev split are also relevant to queries of the train split. A gain on
    such documents may come from memory; a gain on the others does not.
    """
    known = {qrel.document_id for qrel in shown if qrel.grade >= SEEN_GRADE}
    seen = {qrel.query_id for qrel in qrels if qrel.grade >= rel and qrel.document_id in known}
    return frozenset(qrel.query_id for qrel in qrels) - seen
