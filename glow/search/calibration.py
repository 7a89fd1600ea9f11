"""The probability that a hit answers the query, from a hybrid search's evidence, and the confidence in the first hit.

A likely hit has high evidence, is well ahead of the documents nearest to the query, and comes from a certain dense
ranking. All three depend only on the query and the index: no filter and no page changes a hit's probability. Within a
query the probability grows with the evidence, so hits keep their order. A logistic regression (Platt 1999) combines the
three numbers; docs/results/quality.md shows how well it holds on datasets that it was not fitted on.

    m   hits        h   nearest documents of the whole index        q   queries
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import Calibration

Confidence = Literal["high", "low", "none"]
"""Confidence in the first hit: it most likely answers the query; it may; most likely no hit does."""
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
COVERED = 0.4
"""Weight of covered words beside the cosine; docs/results/quality.md has the measurements behind these numbers."""
HIGH, NONE = 0.75, 0.36
ALL_COVERED = 1 - 1e-6
SHARPNESS = 55.0
"""Factor of the evidence in the odds against the head; half or twice of it fits as well."""
NO_RIVAL = 1e-3
"""Added to the odds against a hit, which would otherwise be unbounded without rivals."""
NOT_OPEN = 0.02
"""Added to `uncertainty`, which may be 0, before the logarithm."""
ROUNDS, STEP = 100, 1e-9


def signs_of(
    evidence: Floats,  # float32 [m], of the hits
    head: Floats,  # float32 [h], of the documents nearest to the query, regardless of filters
    openness: float,  # `uncertainty` of these documents' cosines
    sharpness: float,  # as `Calibration`
) -> Doubles:
    """The features of each hit's probability, float64 [m, 3]: log odds against the head, evidence, log openness."""
    hits, rivals = evidence.astype(np.float64), np.sort(head.astype(np.float64))
    odds = np.exp(sharpness * (rivals[None, :] - hits[:, None]))
    if len(rivals):
        # A hit is not its own rival. One outside the head replaces the next lower one, so that more evidence is never worse.
        own = np.searchsorted(rivals, hits, side="right") - 1
        there = np.flatnonzero(own >= 0)
        odds[there, own[there]] = 0.0
    standing = -np.log(odds.sum(1) + NO_RIVAL)
    return np.stack([standing, hits, np.full(len(hits), np.log(openness + NOT_OPEN))], axis=1)


def probabilities(calibration: Calibration, evidence: Floats, head: Floats, openness: float) -> Floats:
    """The probability that each hit answers the query, float32 [m], in (0, 1); arguments as for `signs_of`."""
    signs = signs_of(evidence, head, openness, calibration.sharpness)
    weights = np.array([calibration.standing, calibration.evidence, calibration.openness])
    # One product per row: the rounding of a matrix product depends on the number of rows.
    logits = np.einsum("ij,j->i", signs, weights) + calibration.constant
    likely: Floats = (1.0 / (1.0 + np.exp(-logits))).astype(np.float32)
    return likely


def confidence_of(cosine: float, covered: float) -> Confidence:
    """Confidence in a first hit by its cosine, NaN if unknown, and the fraction of the query's words that it holds, by idf.

    Neither number falls with the number of relevant documents.
    """
    evidence = np.nan_to_num(cosine) + COVERED * covered
    if covered >= ALL_COVERED or evidence >= HIGH:
        return "high"
    return "none" if evidence < NONE else "low"


def fit_logistic(
    signs: Doubles,  # float64 [m, s]
    answers: NDArray[np.bool_],  # bool [m], whether each hit answers its query
    weights: Doubles,  # float64 [m], how much each hit counts
    bounded: Sequence[int] = (0, 1),  # indexes of signs whose coefficient must be at least 0
) -> Doubles:
    """The coefficients of a logistic regression and its constant, float64 [s + 1], by Newton's method."""
    table = np.hstack([signs, np.ones((len(signs), 1))])
    scale = np.maximum(np.abs(table).max(0), 1e-9)
    table, share = table / scale, weights / weights.sum()
    factors, free = np.zeros(table.shape[1]), np.ones(table.shape[1], np.bool_)
    for _ in range(ROUNDS):
        likely = 1.0 / (1.0 + np.exp(-np.clip(table @ factors, -30, 30)))
        slope = table.T @ (share * (answers - likely))
        curve = (table * (share * likely * (1 - likely))[:, None]).T @ table + 1e-9 * np.eye(len(factors))
        step = np.zeros(len(factors))
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        factors = factors + np.clip(step, -20, 20)
        wrong = [sign for sign in bounded if free[sign] and factors[sign] < 0]
        free[wrong], factors[wrong] = False, 0.0
        if not wrong and np.abs(step).max() < STEP:
            break
    fitted: Doubles = factors / scale
    return fitted
