"""Sums of columns with weights from a grid, and how each compares with hybrid search as it was (E4).

m   candidates of all queries
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.candidates import Candidates, Measured, measure
from research.late.ranking import GRID, Weights, best_setting, interval, left_out, lexical, score_grid

__all__ = ["SUMS", "WITHOUT_LATE", "Sum", "compare_sums", "mean_measures"]

Floats = NDArray[np.float32]
Collections = Mapping[str, Candidates]
Late = Mapping[str, Floats] | Mapping[str, None]
NO_LATE = tuple(weights for weights in GRID if weights.late == 0)


@dataclass(frozen=True, slots=True)
class Sum:
    """One form of the sum.

    Attributes:
        grid: settings to choose from.
        uses_uncertainty: whether words count times `uncertainty`.
    """

    grid: Sequence[Weights]
    uses_uncertainty: bool = False

    def lexical(self, candidates: Candidates) -> Floats:
        """The column of words."""
        openness = candidates.openness if self.uses_uncertainty else np.float32(1)
        return (lexical(candidates) * openness).astype(np.float32)

    def measured(self, collections: Collections, late: Late) -> dict[str, list[Measured]]:
        """Every setting's measures in every collection; late interaction is left out of a grid that does not weigh it."""
        uses_late = any(weights.late for weights in self.grid)
        return {
            name: score_grid(each, late[name] if uses_late else None, self.grid, self.lexical(each))
            for name, each in collections.items()
        }

    def together(self, collections: Collections, late: Late) -> dict[str, Any]:
        """The setting that all collections choose together, and its measures."""
        measured = self.measured(collections, late)
        at = best_setting(measured, list(measured))
        found: dict[str, Any] = {"weights": {"late": self.grid[at].late, "words": self.grid[at].words}}
        return found | mean_measures({name: each[at] for name, each in measured.items()})


SUMS = {
    "cosine + words": Sum(NO_LATE),
    "cosine + words, uncertainty": Sum(NO_LATE, True),
    "late + words": Sum(tuple(weights for weights in GRID if weights.late == 1)),
    "mean of cosine and late + words": Sum(tuple(weights for weights in GRID if weights.late == 0.5)),
    "sum": Sum(GRID),
    "sum, uncertainty": Sum(GRID, True),
}
WITHOUT_LATE = {"sum": "cosine + words", "sum, uncertainty": "cosine + words, uncertainty"}


def compare_sums(
    collections: Collections, late: Mapping[str, Floats]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """E4: every form of the sum, by weights that other collections choose, against hybrid search as it was.

    Returns:
        Means, differences from today's with intervals, weights; and RR@10 and nDCG@10 of every query.
    """
    today = {name: measure(each, _today(each)) for name, each in collections.items()}
    rankings = {
        "today": today,
        "vectors": {name: measure(each, each.cosine) for name, each in collections.items()},
        "words": {name: measure(each, each.impacts) for name, each in collections.items()},
        "late": {name: measure(each, late[name]) for name, each in collections.items()},
    }
    weights = {}
    for name, form in SUMS.items():
        measured = form.measured(collections, late)
        chosen = left_out(measured)
        rankings[name] = {key: measured[key][at] for key, at in chosen.items()}
        weights[name] = {
            "left out": {key: [form.grid[at].late, form.grid[at].words] for key, at in chosen.items()},
            "all": form.together(collections, late),
        }
        at = best_setting(measured, list(measured))
        weights[name]["all"]["softmax scale"] = _softmax_scale(form, collections, late, form.grid[at])
    report = {
        "rankings": {name: _summary(each, today) for name, each in rankings.items()},
        "weights": weights,
    }
    return report, _queries(rankings)


def _today(found: Candidates) -> Floats:
    """What hybrid search of decision 6 scores by."""
    return (0.55 * found.cosine + 0.45 * found.openness * found.impacts / found.scale).astype(np.float32)


def _queries(rankings: Mapping[str, Mapping[str, Measured]]) -> dict[str, Any]:
    return {
        name: {
            key: {"RR@10": np.round(each.rr, 4).tolist(), "nDCG@10": np.round(each.ndcg, 4).tolist()}
            for key, each in found.items()
        }
        for name, found in rankings.items()
    }


def _softmax_scale(
    form: Sum, collections: Collections, late: Mapping[str, Floats], weights: Weights
) -> float:
    """What all weights are times, so that a softmax over a query's candidates gives relevant ones the most likelihood; collections count the same."""
    evidence = {
        name: weights.score(each.cosine, late[name] if weights.late else None, form.lexical(each)).astype(
            np.float64
        )
        for name, each in collections.items()
    }

    def loss(scale: float) -> float:
        means = []
        for name, each in collections.items():
            losses = []
            for start, stop in zip(each.starts[:-1].tolist(), each.starts[1:].tolist(), strict=True):
                here, grades = scale * evidence[name][start:stop], each.grades[start:stop]
                if grades.any():
                    top = here.max()
                    losses.append(top + np.log(np.exp(here - top).sum()) - (grades @ here) / grades.sum())
            means.append(np.mean(losses))
        return float(np.mean(means))

    return float(min(np.geomspace(4, 128, 41), key=loss))


def _summary(found: Mapping[str, Measured], today: Mapping[str, Measured]) -> dict[str, Any]:
    """Means, and differences from today's with 95 % paired intervals."""
    summary: dict[str, Any] = dict(mean_measures(found))
    for key, name in (("rr", "RR@10"), ("ndcg", "nDCG@10")):
        differences = {each: getattr(found[each], key) - getattr(today[each], key) for each in found}
        summary[f"{name} less today"] = {
            each: [float(values.mean()), *interval(values)] for each, values in differences.items()
        }
    return summary


def mean_measures(found: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    """RR@10 and nDCG@10 of each collection, and their means over collections."""
    means = {
        "RR@10": {name: float(each.rr.mean()) for name, each in found.items()},
        "nDCG@10": {name: float(each.ndcg.mean()) for name, each in found.items()},
    }
    for values in means.values():
        values["mean"] = float(np.mean(list(values.values())))
    return means
