"""Compares forms of the hybrid score, with weights fitted on other datasets, with the served one.

m   candidates of all queries      q   queries     f   columns of a form
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.candidates import Candidates, Measured, measure
from research.ranking.calibrate import evidence_of

__all__ = ["compare"]

DRAWS = 4000
TRUST = 1e-3
"""Weight of the initial value, which a column without evidence keeps."""
Doubles = NDArray[np.float64]
Columns = Mapping[str, Doubles]
FITTED: Mapping[str, tuple[str, ...]] = {
    "fitted: cosine, late, words": ("cosine", "late", "open words"),
    "fitted: cosine, late, covered words": ("cosine", "late", "open covered words"),
    "fitted: cosine, late, both words": (
        "cosine",
        "late",
        "open words",
        "open covered words",
        "covered words",
    ),
    "fitted: cosine, late, words, titles": ("cosine", "late", "open words", "titled", "open titled"),
    "fitted: cosine, late, words, coverage": (
        "cosine",
        "late",
        "open covered words",
        "covered",
        "open covered",
    ),
    "fitted: cosine, covered words": ("cosine", "open covered words"),
}


def compare(collections: Mapping[str, Candidates]) -> dict[str, Any]:
    """RR@10 and nDCG@10 of every form by dataset, and nDCG@10 differences from the served form with intervals."""
    columns = {name: _columns(each) for name, each in collections.items()}
    fixed: Mapping[str, Callable[[str], Doubles]] = {
        "vectors": lambda name: columns[name]["cosine"],
        "words": lambda name: columns[name]["words"],
        "late": lambda name: columns[name]["late"],
        "decision 6": lambda name: columns[name]["cosine"] + 0.45 / 0.55 * columns[name]["open words"],
        "served without late": lambda name: evidence_of(collections[name], "without_late").astype(np.float64),
        "served": lambda name: evidence_of(collections[name], "with_late").astype(np.float64),
        "served before": lambda name: _of(columns[name], 0.65, 0.205, "open words"),
        "without coverage": lambda name: _of(columns[name], 0.5, 0.35, "open words"),
        "without uncertainty": lambda name: _of(columns[name], 0.5, 0.2, "covered words"),
        "cosine and late, no words": lambda name: _of(columns[name], 0.5, 0.0, "words"),
    }
    measured = {
        form: {name: measure(each, score(name)) for name, each in collections.items()}
        for form, score in fixed.items()
    }
    for form, keys in FITTED.items():
        measured[form] = {}
        for name, each in collections.items():
            others = [other for other in collections if other != name]
            weights = _fit([(_table(columns[other], keys), collections[other]) for other in others])
            measured[form][name] = measure(each, _table(columns[name], keys) @ weights)
    return {form: _told(found, measured["served"]) for form, found in measured.items()}


def _columns(found: Candidates) -> Columns:
    openness = found.openness.astype(np.float64)
    words = found.impacts.astype(np.float64) / found.scale
    covered, titled = words * found.covered, found.more["titled"]
    return {
        "cosine": found.cosine.astype(np.float64), "late": found.more["late"].astype(np.float64), "words": words,
        "covered words": covered, "open words": openness * words, "open covered words": openness * covered,
        "covered": found.covered.astype(np.float64), "open covered": openness * found.covered,
        "titled": titled.astype(np.float64), "open titled": openness * titled,
    }  # fmt: skip


def _of(columns: Columns, late: float, words: float, name: str) -> Doubles:
    return (1 - late) * columns["cosine"] + late * columns["late"] + words * columns[name]


def _table(columns: Columns, keys: Sequence[str]) -> Doubles:
    return np.stack([columns[key] for key in keys], axis=1)


def _fit(given: Sequence[tuple[Doubles, Candidates]]) -> Doubles:
    """Fits weights >= 0 [f] of a softmax over candidates by projected Newton steps; datasets weigh the same."""
    width = given[0][0].shape[1]
    start = np.full(width, 5.0)
    found = start.copy()
    for _ in range(60):
        slope, curve = TRUST * (found - start), TRUST * np.eye(width)
        for table, each in given:
            likely, wanted, share = _softmax(table @ found, each)
            mean = np.add.reduceat(likely[:, None] * table, each.starts[:-1])
            slope += share * ((likely - wanted) @ table)
            curve += share * ((table * likely[:, None]).T @ table - mean.T @ mean)
        free = (found > 0) | (slope < 0)
        step = np.zeros(width)
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        after = np.maximum(found - np.clip(step, -2, 2), 0.0)
        if np.abs(after - found).max() < 1e-5:
            break
        found = after
    return found


def _softmax(evidence: Doubles, found: Candidates) -> tuple[Doubles, Doubles, float]:
    """Likelihoods and targets, both [m] and 0 for queries without a relevant candidate, and 1 / the number of others."""
    starts, queries = found.starts[:-1], found.queries
    grown = np.exp(evidence - np.maximum.reduceat(evidence, starts)[queries])
    relevant = (found.grades > 0).astype(np.float64)
    count = np.add.reduceat(relevant, starts)
    some = (count > 0)[queries]
    likely = np.where(some, grown / np.add.reduceat(grown, starts)[queries], 0.0)
    return likely, relevant / np.maximum(count, 1)[queries], 1 / max(int((count > 0).sum()), 1)


def _told(measured: Mapping[str, Measured], served: Mapping[str, Measured]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    told: dict[str, Any] = {"RR@10": {}, "nDCG@10": {}, "less served": {}}
    draws = []
    for name, found in measured.items():
        less = found.ndcg - served[name].ndcg
        drawn = less[generator.integers(0, len(less), (DRAWS, len(less)))].mean(1)
        draws.append(drawn)
        told["RR@10"][name], told["nDCG@10"][name] = float(found.rr.mean()), float(found.ndcg.mean())
        told["less served"][name] = [float(less.mean()), *np.percentile(drawn, [2.5, 97.5]).tolist()]
    every = np.mean(draws, axis=0)
    for key in ("RR@10", "nDCG@10"):
        told[key]["mean"] = float(np.mean(list(told[key].values())))
    mean = float(np.mean([each[0] for each in told["less served"].values()]))
    told["less served"]["mean"] = [mean, *np.percentile(every, [2.5, 97.5]).tolist()]
    return told
