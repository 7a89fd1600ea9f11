"""Chooses a fusion by judged queries from a grid of methods and weights, and estimates the gain without bias.

The best of many settings looks better than it is, especially with few queries. So the gain is estimated by
cross-validation: each fold of the queries is measured with the setting that the other folds choose.

    q   queries     g   settings
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.evaluation import Difference, compare, dcg
from glow.index import DEFAULT_FUSION, Fusion, FusionWeights, Ranking
from glow.search import Fused, Scorer, fuse_rankings
from glow_index_builder.versions.judged import DEPTH

__all__ = [
    "FOLDS",
    "Candidates",
    "Choice",
    "Tuned",
    "best_setting",
    "choose",
    "ndcg",
    "settings",
    "tune",
]

FOLDS = 5
STEPS = 20
RRF_KS = (10, 60)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of both retrievers for one query.

    Attributes:
        dense, lexical: their candidates, best first.
        rows: int64 [m] ascending, the distinct documents among them.
        dense_scores, lexical_scores, late_scores: float32 [m], exact scores; None if the index cannot compute them.
        covered: float32 [m], the fraction of the query that each document covers; None: all of it.
        lexical_scale: the largest impact of any term.
        grades: row -> grade above 0 of the relevant documents.
        ideal: DCG@10 of the best ranking of the judged documents; 0 if none is relevant.
    """

    dense: Ranking
    lexical: Ranking
    rows: NDArray[np.int64]
    dense_scores: NDArray[np.float32] | None
    lexical_scores: NDArray[np.float32]
    lexical_scale: float
    grades: Mapping[int, int]
    ideal: float
    late_scores: NDArray[np.float32] | None = None
    covered: NDArray[np.float32] | None = None

    def fuse(self, fusion: Fusion, order: NDArray[np.uint32] | None) -> Fused:
        """The ranking that a service would return."""

        def scorer(scores: NDArray[np.float32] | None) -> Scorer | None:
            return None if scores is None else lambda rows: scores[np.searchsorted(self.rows, rows)]

        return fuse_rankings(
            fusion,
            self.dense,
            self.lexical,
            order,
            scorer(self.dense_scores),
            scorer(self.lexical_scores),
            self.lexical_scale,
            score_late=scorer(self.late_scores),
            score_covered=scorer(self.covered),
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The chosen fusion and its gain; all values are means of nDCG@10 over the queries.

    Attributes:
        fusion: the best setting over all queries.
        dense, lexical: each retriever alone.
        default: the default fusion.
        fitted: the chosen setting on the queries that chose it, which overestimates it.
        validated: each fifth of the queries with the setting that the others chose.
        gain: validated - default; `low` and `high` are its 95 % interval (bootstrap over queries).
        queries: number of queries, q.
    """

    fusion: Fusion
    dense: float
    lexical: float
    default: float
    fitted: float
    validated: float
    gain: float
    low: float
    high: float
    queries: int

    def report(self) -> dict[str, Any]:
        """The result as JSON values."""
        values = {name: value for name, value in asdict(self).items() if name != "fusion"}
        return {"fusion": self.fusion.model_dump(), "nDCG@10": values}

    def summary(self) -> str:
        """The result in a few lines of text."""
        fusion = self.fusion
        k = f" k {fusion.k}," if fusion.method == "rrf" else ""
        return (
            f"{fusion.method},{k} weights dense {fusion.weights.dense:g}, lexical {fusion.weights.lexical:g}\n"
            f"nDCG@10 over {self.queries} queries: dense {self.dense:.3f}, lexical {self.lexical:.3f}, "
            f"default fusion {self.default:.3f}, this fusion {self.fitted:.3f}\n"
            f"on queries that did not choose it: {self.validated:.3f}, that is {self.gain:+.3f} over the default "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f}{chance(self.low, self.high)})"
        )


def settings() -> list[Fusion]:
    """The grid, the default first; the first of equally good settings wins."""
    fusions = [DEFAULT_FUSION]
    for step in range(STEPS + 1):
        weights = FusionWeights(dense=step / STEPS, lexical=(STEPS - step) / STEPS)
        fusions.append(Fusion(method="convex", weights=weights))
        fusions += [Fusion(method="rrf", k=k, weights=weights) for k in RRF_KS]
    return fusions


def tune(queries: Sequence[Candidates], order: NDArray[np.uint32] | None, seed: int = 0) -> Tuned:
    """Chooses the setting with the highest nDCG@10.

    Args:
        queries: at least two.
        order: uint32 [n], each document's place in a tie.
        seed: seed of the folds and the bootstrap.
    """
    grid = settings()
    values = np.array([[_of(query, fusion, order) for query in queries] for fusion in grid])
    chosen, validated, gain = cross_validated(values, seed)
    return Tuned(
        fusion=grid[chosen],
        dense=float(np.mean([ndcg(query.dense[1], query) for query in queries])),
        lexical=float(np.mean([ndcg(query.lexical[1], query) for query in queries])),
        default=float(values[0].mean()),
        fitted=float(values[chosen].mean()),
        validated=float(validated.mean()),
        gain=gain.difference,
        low=gain.low,
        high=gain.high,
        queries=len(queries),
    )


def chance(low: float, high: float) -> str:
    """Words for an interval that includes zero."""
    return ", which may be chance" if low <= 0 <= high else ""


def ndcg(rows: NDArray[np.int64], query: Candidates) -> float:
    """nDCG@10 with grades as gains, in [0, 1]; 0 if no document is relevant (Järvelin and Kekäläinen 2002)."""
    if query.ideal == 0.0:
        return 0.0
    return dcg([query.grades.get(row, 0) for row in rows[:DEPTH].tolist()]) / query.ideal


def _of(query: Candidates, fusion: Fusion, order: NDArray[np.uint32] | None) -> float:
    return ndcg(query.fuse(fusion, order).rows, query)


def best_setting(values: NDArray[np.float64]) -> int:
    """The first setting with the highest mean; differences below a millionth count as rounding."""
    return int(np.argmax(np.round(values.mean(axis=1), 6)))


def cross_validated(values: NDArray[np.float64], seed: int) -> tuple[int, NDArray[np.float64], Difference]:
    """The best setting, each query's cross-validated value, float64 [q], and the comparison with the first setting.

    Args:
        values: nDCG@10, float64 [g, q].
        seed: of the folds and the bootstrap.
    """
    folds = np.random.default_rng(seed).permutation(values.shape[1]) % FOLDS
    validated = np.empty(values.shape[1])
    for fold in np.unique(folds):
        here = folds == fold
        validated[here] = values[best_setting(values[:, ~here]), here]
    return best_setting(values), validated, compare(values[0], validated, seed=seed)


@dataclass(frozen=True, slots=True)
class Choice:
    """The gain of a chosen setting over the first one; all values are means of nDCG@10 over the queries.

    Attributes:
        first: the first setting, without the tuned feature.
        present: the index's present setting.
        fitted: the chosen setting on the queries that chose it, which overestimates it.
        validated: each fifth of the queries with the setting that the others chose.
        gain: validated - first; `low` and `high` are its 95 % interval (bootstrap over queries).
        queries: number of queries, q.
    """

    first: float
    present: float
    fitted: float
    validated: float
    gain: float
    low: float
    high: float
    queries: int

    def figures(self) -> dict[str, Any]:
        """The values by name."""
        return {field.name: getattr(self, field.name) for field in fields(Choice)}

    def lines(self, first: str, what: str) -> str:
        """The comparison as text.

        Args:
            first: name of the first setting.
            what: the tuned value.
        """
        return (
            f"nDCG@10 over {self.queries} queries: {first} {self.first:.3f}, former {what} {self.present:.3f}, this {what} "
            f"{self.fitted:.3f}\n"
            f"on queries that did not choose it: {self.validated:.3f}, that is {self.gain:+.3f} over the {first} "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f}{chance(self.low, self.high)})"
        )


def choose(values: NDArray[np.float64], seed: int) -> tuple[int, Choice]:
    """The best setting over all queries, and its gain over the first.

    Args:
        values: nDCG@10, float64 [g, q]; the last setting is the index's present one.
        seed: of the folds and the bootstrap.
    """
    chosen, validated, gain = cross_validated(values, seed)
    return chosen, Choice(
        first=float(values[0].mean()),
        present=float(values[-1].mean()),
        fitted=float(values[chosen].mean()),
        validated=float(validated.mean()),
        gain=gain.difference,
        low=gain.low,
        high=gain.high,
        queries=values.shape[1],
    )
