"""What changes mean for the live version: which rows go, which documents are new, and whether a delta may grow so large."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError
from glow.records import Document
from glow_index_builder.deltas.input import Changes
from glow_index_builder.deltas.open_version import OpenVersion

__all__ = ["FREE_CHANGES", "Plan", "plan_changes"]

FREE_CHANGES = 1_000
"""So small a delta is searched in no time whatever its base, so its share is not asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a new delta consists of.

    Attributes:
        documents: new to the delta, each id once.
        kept: bool, which documents of the delta before stay.
        tombstones: rows of the base that will be gone, int64, ascending.
        base_documents: of the base.
        most: documents and tombstones that a delta may have.
        counts: `new`, `replaced`, `unchanged`, `deleted`, `unknown` ids.
    """

    documents: list[Document]
    kept: NDArray[np.bool_]
    tombstones: NDArray[np.int64]
    base_documents: int
    most: int
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_change(self) -> bool:
        """Whether the index would be another."""
        return bool(self.counts["new"] or self.counts["replaced"] or self.counts["deleted"])

    @property
    def changes(self) -> int:
        """Documents and tombstones of the delta."""
        return len(self.documents) + int(np.count_nonzero(self.kept)) + len(self.tombstones)

    def size(self) -> dict[str, float]:
        """The delta's size as the report tells it."""
        return {
            "documents": self.changes - len(self.tombstones),
            "tombstones": len(self.tombstones),
            "share": round(self.changes / max(self.base_documents, 1), 4),
            "most": self.most,
        }

    def warning(self) -> str:
        """What to say where the delta has grown past half of what it may have; empty elsewhere."""
        if 2 * self.changes <= self.most:
            return ""
        return (
            f"the delta has {self.changes} documents and tombstones of at most {self.most}; fold it in soon: "
            "glow compact"
        )


def plan_changes(live: OpenVersion, changes: Changes, max_share: float, max_documents: int) -> Plan:
    """Works out a new delta.

    Args:
        live: the version to change.
        changes: what is asked for.
        max_share: documents and tombstones as a share of the base; from 1,000 of them on.
        max_documents: documents and tombstones.

    Raises:
        InputError: if the delta would be too large; the live version stays.
    """
    counts: Counter[str] = Counter(new=0, replaced=0, unchanged=0, deleted=0, unknown=0)
    base = live.base.rows.documents
    kept = np.ones(live.delta_documents, np.bool_)
    gone = set(live.tombstones.tolist())
    documents = []

    def remove(identifier: str) -> bool:
        row = live.documents.find(identifier)
        if row is None:
            return False
        if row < base:
            gone.add(row)
        else:
            kept[row - base] = False
        return True

    for identifier, document in changes.upserts.items():
        if _is_held(live, document):
            counts["unchanged"] += 1
            continue
        counts["replaced" if remove(identifier) else "new"] += 1
        documents.append(document)
    for identifier in changes.deletes:
        counts["deleted" if remove(identifier) else "unknown"] += 1
    most = max(min(int(max_share * base), max_documents), min(FREE_CHANGES, max_documents))
    tombstones = np.array(sorted(gone), np.int64)
    plan = Plan(documents, kept, tombstones, base, most, dict(counts))
    if plan.is_change and plan.changes > most:
        raise InputError(
            f"the delta would have {plan.changes} documents and tombstones on a base of {base} documents, at "
            f"most {most} are allowed (--max-delta-ratio, --max-delta-documents); run `glow compact` "
            "first, and the command again"
        )
    return plan


def _is_held(live: OpenVersion, document: Document) -> bool:
    """Whether the index has the very same document."""
    row = live.documents.find(document.id)
    if row is None:
        return False
    found = live.documents.rows([row])[0]
    fields = {name: values for name, values in document.fields.items() if values}
    return dict(found.fields) == fields and _json(found.metadata) == _json(document.metadata)


def _json(value: Any) -> str:
    """One text for one value: Python takes true for 1, and 1 for 1.0."""
    return json.dumps(value, sort_keys=True)
