"""What to change in a live version: the options and input of upsert, delete and compact, and the plan of a new delta."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from glow.artifact import IndexRoot
from glow.collection import MAX_DOCUMENT_BYTES, parse_document, read_document
from glow.commands import Advance, JsonOptions, option
from glow.errors import InputError, RecordError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter, restricts_nothing
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import merged
from glow.records import Document
from glow_index_builder.input.lines import LineReader, RejectLog
from glow_index_builder.input.source import Source
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.options import InputOptions, LineOptions, ModelOptions, ThreadOptions, WaitOptions


class ChangeOptions(LineOptions, JsonOptions, WaitOptions):
    """What to change, and how much of it may be too much."""

    source: str = option(..., "FILE.jsonl, a directory, or - for standard input.", flag="--input")
    max_share: float = option(
        0.1, "Largest ratio of delta to base; applies from 1,000 changes.", flag="--max-delta-ratio", ge=0.0
    )
    max_documents: int = option(
        20_000, "Most documents and tombstones in a delta.", flag="--max-delta-documents", ge=1
    )


class UpsertOptions(ModelOptions, ThreadOptions, InputOptions, ChangeOptions):
    """Documents to add or replace."""


class DeleteOptions(ChangeOptions):
    """Documents to delete."""

    source: str = option("", "File with one id per line, or - for standard input.", flag="--input")
    filter: str = option("", "Deletes what it matches, in place of --input; as for a search.", metavar="JSON")
    all: bool = option(False, "Allow --filter to match, or delete without it, every document.")

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if bool(self.source) == bool(self.filter or self.all):
            raise ValueError("give either --input FILE, or --filter JSON or --all")
        return self


class CompactOptions(ThreadOptions, JsonOptions, WaitOptions):
    """What to compact and how."""


class DeltaFullError(InputError):
    """The changes do not fit into a delta."""


@dataclass(slots=True)
class Changes:
    """Changes to apply to an index."""

    upserts: dict[str, Document] = field(
        default_factory=dict
    )  # id -> document, which is added or replaces one
    deletes: dict[str, None] = field(default_factory=dict)  # ids, in input order; none is among the upserts
    # id -> JSON merge patches of its metadata (RFC 7396), which follow an upsert; none is among the deletes
    patches: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    unknown: int = 0  # number of patches of documents that an earlier change deletes
    repeated: int = 0  # number of lines whose id a later line repeats; the last one counts

    def __len__(self) -> int:
        return len(self.upserts) + len(self.deletes) + len(self.patches)

    def patch(self, identifier: str, patch: Mapping[str, Any]) -> None:
        """Changes a document's metadata after the changes so far."""
        if identifier in self.deletes:
            self.unknown += 1
        else:
            self.patches.setdefault(identifier, []).append(patch)


def patched(document: Document, patches: Iterable[Mapping[str, Any]]) -> Document:
    """The document with changed metadata, checked as a line of input."""
    records = (
        {**metadata, **document.fields, "_id": document.id}
        for metadata in (document.metadata, reduce(merged, patches, document.metadata))
    )
    before, after = (json.dumps(each, ensure_ascii=False).encode(errors="replace") for each in records)
    return read_document(after, list(document.fields), max_bytes=max(MAX_DOCUMENT_BYTES, len(before)))


MAX_FILTER_TERMS = 1_000
UNBOUNDED = 2**31


def deletion(root: IndexRoot, condition: Mapping[str, Any] | None, *, means_all: bool = False) -> Changes:
    """The deletion of the live documents that a filter matches; None matches all."""
    index = Index.open(root.folder(root.current()))
    metadata = index[COLUMNS]
    condition = {"and": []} if condition is None else condition
    expression = parse_filter(condition, metadata.columns, MAX_FILTER_TERMS)
    if restricts_nothing(expression) and not means_all:
        raise InputError('the filter matches every document; --all (HTTP: "all": true) deletes them')
    rows = metadata.masks.mask(expression).rows.tolist()
    return Changes(deletes=dict.fromkeys(index[STORED_FIELDS].ids(rows)))


def read_changes(
    sources: Sequence[Source],
    reader: LineReader,
    options: ChangeOptions,  # of an upsert: lines are documents; otherwise they are ids to delete
    rejects: RejectLog,
    advance: Advance,  # called with the bytes read
) -> Changes:
    """Reads documents, or ids (plain or in objects with `_id`), one per line; the last one with an id counts."""
    changes = Changes()
    for source in sources:
        for line in source.lines(options.max_line_bytes):
            try:
                if isinstance(options, UpsertOptions):
                    document = reader.read(line)
                    # The last one goes to the end, as if each line were a separate command.
                    changes.repeated += changes.upserts.pop(document.id, None) is not None
                    changes.upserts[document.id] = document
                else:
                    reader.require_whole(line)
                    identifier = _identifier(line.data)
                    changes.repeated += identifier in changes.deletes
                    changes.deletes[identifier] = None
            except RecordError as error:
                rejects.add(source.name, line.number, str(error), line.data, reader.known_id(line))
            if len(changes) > options.max_documents:
                raise InputError(
                    f"more than {options.max_documents} different documents for one delta, as --max-delta-documents "
                    "says; give fewer, or build the index again"
                )
            advance(line.read_bytes)
    return changes


def _identifier(data: bytes) -> str:
    """The id in a line: the whole line including leading and trailing blanks, because ids may have them."""
    if data.lstrip().startswith(b"{"):
        return parse_document(data, ()).id
    try:
        # As an object, so that the id is checked as in documents.
        return parse_document(json.dumps({"_id": data.decode()}).encode(), ()).id
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {data[error.start]:#04x} at position {error.start}") from error


FREE_CHANGES = 1_000
"""Up to this size the ratio to the base is not limited, because searching so small a delta costs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The contents of a new delta."""

    documents: list[Document]  # documents to add to the delta, each id once
    stays: NDArray[np.bool_]  # bool, which documents of the previous delta stay
    tombstones: NDArray[np.int64]  # deleted or replaced rows of the base, int64, ascending
    base_documents: int
    most: int  # most documents and tombstones that the delta may have
    counts: dict[
        str, int
    ]  # of `new`, `replaced`, `unchanged`, `deleted` and `unknown` ids; documents `encoded`, `reused`

    @property
    def is_change(self) -> bool:
        """Whether the index would change."""
        return bool(self.counts["new"] or self.counts["replaced"] or self.counts["deleted"])

    @property
    def changes(self) -> int:
        """Number of documents and tombstones in the delta."""
        return len(self.documents) + int(np.count_nonzero(self.stays)) + len(self.tombstones)

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
        size = f"the delta has {self.changes} documents and tombstones of at most {self.most}"
        return f"{size}; fold it in soon: glow compact" if 2 * self.changes > self.most else ""


def plan_changes(live: OpenVersion, changes: Changes, max_share: float, max_documents: int) -> Plan:
    """Plans a new delta."""
    counts = Counter(new=0, replaced=0, unchanged=0, deleted=0, unknown=changes.unknown, encoded=0, reused=0)
    base = live.base.rows.documents
    stays = np.ones(0 if live.delta is None else live.delta.segment.rows.documents, np.bool_)
    gone, documents = set(live.tombstones.tolist()), []
    ids = [*changes.upserts, *changes.patches, *changes.deletes]
    rows = dict(zip(ids, live.documents.find_all(ids), strict=True))

    def remove(identifier: str) -> bool:
        row = rows[identifier]
        if row is None:
            return False
        if row < base:
            gone.add(row)
        else:
            stays[row - base] = False
        return True

    upserts = _patched_upserts(live, changes, rows)
    counts["unknown"] += len(changes.patches.keys() - upserts.keys())
    for identifier, document in upserts.items():
        if _is_held(live, rows[identifier], document):
            counts["unchanged"] += 1
            continue
        counts["replaced" if remove(identifier) else "new"] += 1
        documents.append(document)
    for identifier in changes.deletes:
        counts["deleted" if remove(identifier) else "unknown"] += 1
    most = max(min(int(max_share * base), max_documents), min(FREE_CHANGES, max_documents))
    tombstones = np.array(sorted(gone), np.int64)
    plan = Plan(documents, stays, tombstones, base, most, dict(counts))
    if plan.is_change and plan.changes > most:
        raise DeltaFullError(
            f"the delta would have {plan.changes} documents and tombstones on a base of {base} documents, at "
            f"most {most} are allowed (--max-delta-ratio, --max-delta-documents); run `glow compact` "
            "first, and the command again"
        )
    return plan


def _patched_upserts(
    live: OpenVersion, changes: Changes, rows: Mapping[str, int | None]
) -> dict[str, Document]:
    """The documents to add or replace, with what patches make of them and of live ones."""
    upserts = dict(changes.upserts)
    for identifier, patches in changes.patches.items():
        document = upserts.get(identifier)
        if document is None and (row := rows[identifier]) is not None:
            document = live.documents.rows([row])[0]
        if document is not None:
            upserts[identifier] = patched(document, patches)
    return upserts


def _is_held(live: OpenVersion, row: int | None, document: Document) -> bool:
    """Whether the row of a document's id holds an identical one."""
    if row is None:
        return False
    stored = live.documents.rows([row])[0]
    fields = {name: values for name, values in document.fields.items() if values}
    # As text, because in Python True equals 1, and 1 equals 1.0.
    before, after = (json.dumps(each.metadata, sort_keys=True) for each in (stored, document))
    return dict(stored.fields) == fields and before == after
