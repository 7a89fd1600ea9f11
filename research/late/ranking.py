"""One sum over columns for every candidate, its measures, and weights that other collections choose.

m   candidates of all queries   q   queries     w   settings of weights
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from research.late.candidates import Candidates

__all__ = ["GRID", "Measured", "Weights", "best_setting", "interval", "left_out", "measure", "score_grid"]

Floats = NDArray[np.float32]
DEPTH = 10
DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one sum: dense * ((1 - late) * cosine + late * late) + words * lexical, with dense = 1."""

    late: float
    words: float

    def score(self, cosine: Floats, late: Floats | None, lexical: Floats) -> Floats:
        """The evidence, float32 [m]."""
        dense = cosine if late is None else (1 - self.late) * cosine + self.late * late
        return (dense + self.words * lexical).astype(np.float32)


WORDS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0)
LATE = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
GRID = tuple(Weights(late, words) for late, words in product(LATE, WORDS))


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """RR@10 and nDCG@10 of each query, float64 [q]."""

    rr: NDArray[np.float64]
    ndcg: NDArray[np.float64]


def measure(candidates: Candidates, scores: Floats) -> Measured:
    """The measures of a ranking of the candidates; ties by document, grades are gains.

    Only ranks of relevant documents are worked out: how many of the query's candidates are before them.
    """
    pairs = candidates.pairs
    every = scores[pairs.mates]
    own, order = scores[pairs.places][:, None], candidates.order
    is_tied = (every == own) & (order[pairs.mates] < order[pairs.places][:, None])
    rank = 1 + (((every > own) | is_tied) & pairs.is_mate).sum(1)
    rr, gained = np.zeros(len(candidates)), np.zeros(len(candidates))
    first = rank <= DEPTH
    np.maximum.at(rr, pairs.queries[first], 1.0 / rank[first])
    np.add.at(gained, pairs.queries[first], candidates.grades[pairs.places][first] / np.log2(rank[first] + 1))
    return Measured(rr, gained / np.maximum(candidates.ideal, 1e-9))


def score_grid(
    candidates: Candidates, late: Floats | None, grid: Sequence[Weights], lexical: Floats | None = None
) -> list[Measured]:
    """Measures of every setting; `lexical` in place of the candidates' own column."""
    words = candidates.lexical if lexical is None else lexical
    return [measure(candidates, weights.score(candidates.cosine, late, words)) for weights in grid]


def best_setting(measured: Mapping[str, Sequence[Measured]], names: Sequence[str]) -> int:
    """The setting with the highest mean nDCG@10 over some collections, each counting the same; the first of equals."""
    means = np.mean([[each.ndcg.mean() for each in measured[name]] for name in names], axis=0)
    return int(np.argmax(np.round(means, 6)))


def left_out(measured: Mapping[str, Sequence[Measured]]) -> dict[str, int]:
    """For each collection the setting that the others choose."""
    return {name: best_setting(measured, [other for other in measured if other != name]) for name in measured}


def interval(differences: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of paired differences."""
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(differences), (DRAWS, len(differences)))
    low, high = np.percentile(differences[draws].mean(1), [2.5, 97.5])
    return float(low), float(high)
