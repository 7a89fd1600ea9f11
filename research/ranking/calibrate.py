"""Calibrations of hybrid search, fitted on some datasets and measured on left-out ones.

m   hits, the first ten of each query      q   queries
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import DEFAULT_FUSION, Calibration, Calibrations
from glow.search import HEAD, SHARPNESS, fit_logistic, signs_of, uncertainty
from glow.search.hybrid import LATE_SHARE, LATE_WORDS
from research.candidates import DEPTH, Candidates

__all__ = ["Hits", "calibrated", "evidence_of", "expected_error", "hits_of", "left_out"]

NONE_SHARE = 0.1
"""Fraction of queries without relevant documents in the data that calibrations are fitted to."""
SURE, LOST = 0.8, 0.05
"""Least precision of `high` first hits, and fraction of answerable queries that may be called `none`."""
LEAST_SURE = 30
Doubles = NDArray[np.float64]
Kind = Literal["with_late", "without_late"]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Evidence of the first hits of all queries of a dataset, for probabilities.

    Attributes:
        signs: float64 [m, 3].
        answers: bool [m].
        queries: int64 [m], ascending.
        is_first: bool [m].
    """

    signs: Doubles
    answers: NDArray[np.bool_]
    queries: NDArray[np.int64]
    is_first: NDArray[np.bool_]


def evidence_of(found: Candidates, kind: Kind) -> NDArray[np.float32]:
    """The hybrid score of each candidate, float32 [m]."""
    weights = DEFAULT_FUSION.weights
    words = weights.lexical * found.openness * found.impacts * found.covered / found.scale
    if kind == "without_late":
        return (weights.dense * found.cosine + words).astype(np.float32)
    dense = (1 - LATE_SHARE) * found.cosine + LATE_SHARE * found.more["late"]
    return (weights.dense * dense + LATE_WORDS * words).astype(np.float32)


def hits_of(found: Candidates, kind: Kind) -> Hits:
    """The first ten hits of every query."""
    evidence, signs, answers, queries, first = evidence_of(found, kind), [], [], [], []
    for query, (start, stop) in enumerate(
        zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)
    ):
        here = slice(start, stop)
        ranked = start + np.lexsort((found.order[here], -evidence[here]))[:DEPTH]
        near = start + np.argsort(-found.cosine[here], kind="stable")[:HEAD]
        openness = uncertainty(found.head[query])
        signs.append(signs_of(evidence[ranked], evidence[near], openness, SHARPNESS[kind]))
        answers.append(found.grades[ranked] > 0)
        queries.append(np.full(len(ranked), query))
        first.append(np.arange(len(ranked)) == 0)
    return Hits(*(np.concatenate(each) for each in (signs, answers, queries, first)))


def _fit(answered: Sequence[Hits], nothing: Sequence[Hits]) -> Doubles:
    """Fits coefficients; datasets weigh the same, and unanswerable queries together have the weight `NONE_SHARE`."""
    hits, weights = [*answered, *nothing], []
    for each in answered:
        weights.append(np.full(len(each.answers), (1 - NONE_SHARE) / len(answered) / len(each.answers)))
    for each in nothing:
        weights.append(np.full(len(each.answers), NONE_SHARE / len(nothing) / len(each.answers)))
    signs = np.concatenate([each.signs for each in hits])
    return fit_logistic(signs, np.concatenate([each.answers for each in hits]), np.concatenate(weights))


def _likely(hits: Hits, fitted: Doubles) -> Doubles:
    likely: Doubles = 1 / (1 + np.exp(-(hits.signs @ fitted[:-1] + fitted[-1])))
    return likely


def expected_error(likely: Doubles, answers: NDArray[np.bool_], bins: int = 10) -> float:
    """Expected calibration error over bins of equal mass."""
    parts = np.array_split(np.argsort(likely, kind="stable"), bins)
    return float(
        sum(
            len(each) / len(likely) * abs(likely[each].mean() - answers[each].mean())
            for each in parts
            if len(each)
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class _First:
    """First hits of left-out datasets: probability, relevance, and relevance of any of the top ten."""

    likely: Doubles
    answers: NDArray[np.bool_]
    answerable: NDArray[np.bool_]


def _first(hits: Hits, likely: Doubles) -> _First:
    some = np.zeros(int(hits.queries.max()) + 1, np.bool_)
    np.logical_or.at(some, hits.queries, hits.answers)
    return _First(likely[hits.is_first], hits.answers[hits.is_first], some[hits.queries[hits.is_first]])


def _bounds(first: Sequence[_First]) -> tuple[float, float]:
    """The bounds `high` and `none` for first hits' probabilities. For `none`, datasets weigh the same."""
    likely = np.concatenate([each.likely for each in first])
    answers = np.concatenate([each.answers for each in first])
    shares = [each.answerable / max(int(each.answerable.sum()), 1) for each in first]
    answerable = np.concatenate(shares) / len(first)
    tried = np.round(np.arange(0.01, 1.0, 0.01), 2).tolist()
    sure = [at for at in tried if (likely >= at).sum() >= LEAST_SURE and answers[likely >= at].mean() >= SURE]
    lost = [at for at in tried if answerable[likely < at].sum() <= LOST]
    return min(sure, default=1.0), max(lost, default=0.0)


def left_out(answered: Mapping[str, Hits], nothing: Mapping[str, Hits]) -> dict[str, Any]:
    """Calibration error on each dataset if fitted on the others."""
    told: dict[str, Any] = {"collections": {}}
    likely, first, none = [], [], []
    for name, hits in answered.items():
        others = [each for other, each in answered.items() if other != name]
        fitted = _fit(others, [each for other, each in nothing.items() if other != name])
        likely.append(_likely(hits, fitted))
        first.append(_first(hits, likely[-1]))
        told["collections"][name] = {
            "hits": len(hits.answers), "first hits": len(first[-1].likely),
            "error": expected_error(likely[-1], hits.answers),
            "first hits answer": float(first[-1].answers.mean()), "said of first hits": float(first[-1].likely.mean()),
        }  # fmt: skip
        if name in nothing:
            none.append(_likely(nothing[name], fitted)[nothing[name].is_first])
    high, low = _bounds(first)
    every, answers = np.concatenate(likely), np.concatenate([each.answers for each in answered.values()])
    tops, right = (
        np.concatenate([each.likely for each in first]),
        np.concatenate([each.answers for each in first]),
    )
    told |= {
        "error": expected_error(every, answers), "error of first hits": expected_error(tops, right), "high": high, "none": low,
        "called high": float((tops >= high).mean()), "high answer": float(right[tops >= high].mean()),
        "nothing answers, called none": float((np.concatenate(none) < low).mean()),
        "bins": _bins(every, answers), "bins of first hits": _bins(tops, right),
    }  # fmt: skip
    return told


def _bins(likely: Doubles, answers: NDArray[np.bool_]) -> list[tuple[float, float, int]]:
    parts = np.array_split(np.argsort(likely, kind="stable"), 10)
    return [(float(likely[each].mean()), float(answers[each].mean()), len(each)) for each in parts]


def calibrated(kinds: Mapping[Kind, tuple[Mapping[str, Hits], Mapping[str, Hits]]]) -> Calibrations:
    """The calibrations of all datasets together; bounds come from left-out ones."""
    made: dict[Kind, Calibration] = {}
    for kind, (answered, nothing) in kinds.items():
        told = left_out(answered, nothing)
        standing, evidence, openness, constant = (
            _fit(list(answered.values()), list(nothing.values())).round(4).tolist()
        )
        made[kind] = Calibration(
            sharpness=SHARPNESS[kind], standing=standing, evidence=evidence, openness=openness, constant=constant,
            high=told["high"], none=told["none"],
        )  # fmt: skip
    return Calibrations(
        weights=DEFAULT_FUSION.weights, with_late=made["with_late"], without_late=made["without_late"]
    )
