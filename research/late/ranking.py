"""One sum over columns for every candidate, and weights that other collections choose.

m   candidates of all queries   q   queries     w   settings of weights
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from research.candidates import Candidates, Measured, measure

__all__ = ["GRID", "Weights", "best_setting", "interval", "left_out", "lexical", "score_grid"]

Floats = NDArray[np.float32]
DRAWS = 4000
DEPTH_OF_WORDS = 8
"""Words of a query up to which coverage counts fully."""


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


def lexical(candidates: Candidates) -> Floats:
    """The column of words, float32 [m]."""
    words = candidates.spread(candidates.more["words"])
    power = np.minimum(1.0, DEPTH_OF_WORDS / np.maximum(words, 1.0))
    return (candidates.impacts / candidates.scale * candidates.covered**power).astype(np.float32)


def score_grid(
    candidates: Candidates, late: Floats | None, grid: Sequence[Weights], words: Floats
) -> list[Measured]:
    """Measures of every setting; `words` is the column of words."""
    return [measure(candidates, weights.score(candidates.cosine, late, words)) for weights in grid]


def best_setting(measured: Mapping[str, Sequence[Measured]], names: Sequence[str]) -> int:
    """The setting with the highest mean nDCG@10 over some collections, each counting the same; the first of equals."""
    means = np.mean([[each.ndcg.mean() for each in measured[name]] for name in names], axis=0)
    return int(np.argmax(np.round(means, 6)))


def left_out(measured: Mapping[str, Sequence[Measured]]) -> dict[str, int]:
    """For each collection the setting that the others choose."""
    return {name: best_setting(measured, [other for other in measured if other != name]) for name in measured}


def interval(differences: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of paired differences."""
    generator = np.random.default_rng(0)
    draws = generator.integers(0, len(differences), (DRAWS, len(differences)))
    low, high = np.percentile(differences[draws].mean(1), [2.5, 97.5])
    return float(low), float(high)
