"""Calibrates a tuned fusion: fits an index's own probabilities from the queries that tuned it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glow.index import Calibration, Calibrations, Fusion
from glow.search import SHARPNESS, fit_logistic, signs_of
from glow_index_builder.versions.judged import DEPTH
from glow_index_builder.versions.tuning import Candidates

__all__ = ["calibrate"]

LEAST_QUERIES = 100
"""Fewer queries do not determine three coefficients and two bounds."""
SURE, LEAST_SURE, LOST = 0.8, 20, 0.05
"""Least precision and number of `high` first hits; fraction of answerable queries that may be called `none`."""


def calibrate(
    queries: Sequence[Candidates], fusion: Fusion, order: NDArray[np.uint32] | None
) -> Calibrations | None:
    """Fits a mapping from a fusion's scores to probabilities.

    Args:
        queries: judged queries.
        fusion: the tuned fusion.
        order: uint32 [n], each document's place in a tie.

    Returns:
        None if there are fewer than 100 queries, no relevant hit in the top ten, or a fusion of ranks.
    """
    if fusion.method != "convex" or len(queries) < LEAST_QUERIES:
        return None
    has_late = all(query.late_scores is not None for query in queries)
    without = [replace(query, late_scores=None) for query in queries]
    plain = _fit(without, fusion, order, SHARPNESS["without_late"])
    late = _fit(queries, fusion, order, SHARPNESS["with_late"]) if has_late else None
    if plain is None and late is None:
        return None
    return Calibrations(weights=fusion.weights, with_late=late, without_late=plain)


def _fit(
    queries: Sequence[Candidates], fusion: Fusion, order: NDArray[np.uint32] | None, sharpness: float
) -> Calibration | None:
    signs, answers, first = [], [], []
    for query in queries:
        fused = query.fuse(fusion, order)
        if fused.head is None or not len(fused.rows):
            continue
        signs.append(signs_of(fused.scores[:DEPTH], fused.head, fused.openness, sharpness))
        answers.append(np.array([row in query.grades for row in fused.rows[:DEPTH].tolist()]))
        first.append(np.arange(len(answers[-1])) == 0)
    if not any(each.any() for each in answers):
        return None
    table, right, top = np.concatenate(signs), np.concatenate(answers), np.concatenate(first)
    fitted = fit_logistic(table, right, np.ones(len(right)))
    if fitted[0] + fitted[1] == 0:
        return None  # the evidence does not discriminate here
    likely = 1 / (1 + np.exp(-(table @ fitted[:-1] + fitted[-1])))
    answerable = np.array([each.any() for each in answers])
    high, none = _bounds(likely[top], right[top], answerable)
    return Calibration(
        sharpness=sharpness,
        standing=float(fitted[0]),
        evidence=float(fitted[1]),
        openness=float(fitted[2]),
        constant=float(fitted[3]),
        high=max(high, none),
        none=none,
    )


def _bounds(
    likely: NDArray[np.float64], right: NDArray[np.bool_], answerable: NDArray[np.bool_]
) -> tuple[float, float]:
    """The bounds `high` and `none`; arguments per query, `answerable`: whether a top-ten hit is relevant."""
    tried = np.round(np.arange(0.01, 1.0, 0.01), 2).tolist()
    called = ((at, likely >= at) for at in tried)
    sure = [at for at, each in called if each.sum() >= LEAST_SURE and right[each].mean() >= SURE]
    return min(sure, default=1.0), float(np.quantile(likely[answerable], LOST))
