"""What late interaction is worth by how tokens are kept and counted: bytes a document, weights of query tokens."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.candidates import Candidates, measure
from research.late.forms import FORMS, REFERENCE, column, sizes
from research.late.sums import SUMS, WITHOUT_LATE, mean_measures
from research.late.tokens import QUERY_WEIGHTS, Form

__all__ = ["bytes_of_forms", "query_weights"]

Floats = NDArray[np.float32]
Collections = Mapping[str, Candidates]
TYPICAL_TOKENS = 80
TOGETHER = ("sum", "sum, uncertainty")


def query_weights(collections: Collections, work: Path, forms: Sequence[Form]) -> list[dict[str, Any]]:
    """E6: measures alone and in both sums, for each weighting of the query's tokens."""
    rows = []
    for form, weighting, specials in product(forms, QUERY_WEIGHTS, (True, False)):
        late = {name: column(form, name, work, weighting, specials) for name in collections}
        choice = {"form": form.name, "weighting": weighting, "query specials": specials}
        rows.append({**choice, **_measures(collections, late)})
    return rows


def bytes_of_forms(collections: Collections, work: Path) -> list[dict[str, Any]]:
    """E5: bytes, measures alone and in both sums, and the share of the floats' gain that is kept."""
    base = _without_late(collections)
    rows = []
    for form in FORMS:
        late = {name: column(form, name, work) for name in collections}
        size = {
            "bytes": sizes(form, list(collections), work),
            "bytes at 80": float(form.bytes_of(TYPICAL_TOKENS)),
        }
        rows.append({"form": form.name, **size, **_measures(collections, late)})
    reference = next(row for row in rows if row["form"] == REFERENCE.name)
    for row, key in product(rows, ("alone", *TOGETHER)):
        for name in ("RR@10", "nDCG@10"):
            gain = reference[key][name]["mean"] - base[key][name]["mean"]
            row[key][name]["kept"] = (row[key][name]["mean"] - base[key][name]["mean"]) / gain
    return [{"form": "no late", **base}, *rows]


def _without_late(collections: Collections) -> dict[str, Any]:
    """Of vectors, and of the sums without late interaction."""
    alone = {name: measure(each, each.cosine) for name, each in collections.items()}
    columns = {name: None for name in collections}
    found = {key: SUMS[WITHOUT_LATE[key]].together(collections, columns) for key in TOGETHER}
    return {"alone": mean_measures(alone), **found}


def _measures(collections: Collections, late: Mapping[str, Floats]) -> dict[str, Any]:
    alone = {name: measure(each, late[name]) for name, each in collections.items()}
    found = {key: SUMS[key].together(collections, late) for key in TOGETHER}
    return {"alone": mean_measures(alone), **found}
