"""Plans a new delta: which rows are removed, which documents are new, and whether the delta would be too large."""

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
"""Up to this size the ratio to the base is not limited, because searching so small a delta costs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The contents of a new delta.

    Attributes:
        documents: documents to add to the delta, each id once.
        kept: bool, which documents of the previous delta stay.
        tombstones: deleted or replaced rows of the base, int64, ascending.
        base_documents: number of documents in the base.
        most: most documents and tombstones that the delta may have.
        counts: numbers of `new`, `replaced`, `unchanged`, `deleted` and `unknown` ids.
    """

    documents: list[Document]
    kept: NDArray[np.bool_]
    tombstones: NDArray[np.int64]
    base_documents: int
    most: int
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_change(self) -> bool:
        """Whether the index would change."""
        return bool(self.counts["new"] or self.counts["replaced"] or self.counts["deleted"])

    @property
    def changes(self) -> int:
        """Number of documents and tombstones in the delta."""
        return len(self.documents) + int(np.count_nonzero(self.kept)) + len(self.tombstones)

    def size(self) -> dict[str, float]:
        """The delta's size for the report."""
        return {
            "documents": self.changes - len(self.tombstones),
            "tombstones": len(self.tombstones),
            "share": round(self.changes / max(self.base_documents, 1), 4),
            "most": self.most,
        }

    def warning(self) -> str:
        """A warning if the delta has passed half of its limit; otherwise empty."""
        if 2 * self.changes <= self.most:
            return ""
        return (
            f"the delta has {self.changes} documents and tombstones of at most {self.most}; fold it in soon: "
            "glow compact"
        )


def plan_changes(live: OpenVersion, changes: Changes, max_share: float, max_documents: int) -> Plan:
    """Plans a new delta.

    Args:
        live: the version to change.
        changes: the changes to apply.
        max_share: largest ratio of documents and tombstones to the base; applies from 1,000 of them.
        max_documents: most documents and tombstones.

    Raises:
        InputError: if the delta would be too large; the live version is unchanged.
    """
    counts: Counter[str] = Counter(new=0, replaced=0, unchanged=0, deleted=0, unknown=0)
    base = live.base.rows.documents
    kept = np.ones(live.delta_documents, np.bool_)
    gone = set(live.tombstones.tolist())
    documents = []

    ids = [*changes.upserts, *changes.deletes]
    rows = dict(zip(ids, live.documents.find_all(ids), strict=True))

    def remove(identifier: str) -> bool:
        row = rows[identifier]
        if row is None:
            return False
        if row < base:
            gone.add(row)
        else:
            kept[row - base] = False
        return True

    for identifier, document in changes.upserts.items():
        if _is_held(live, rows[identifier], document):
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


def _is_held(live: OpenVersion, row: int | None, document: Document) -> bool:
    """Whether the row of a document's id holds an identical one."""
    if row is None:
        return False
    found = live.documents.rows([row])[0]
    fields = {name: values for name, values in document.fields.items() if values}
    return dict(found.fields) == fields and _json(found.metadata) == _json(document.metadata)


def _json(value: Any) -> str:
    """A distinct text for each value: in Python, True equals 1, and 1 equals 1.0."""
    return json.dumps(value, sort_keys=True)
