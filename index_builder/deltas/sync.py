"""`glow sync`: makes the index equal to its input, as one version.

The input is read into a store and compared with the live version in the order of ids, so memory does not grow with it.
A difference that fits into a delta becomes one; a larger one is built.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot, folder_for
from glow.commands import Advance, option
from glow.errors import ConfigError, InputError, RecordError
from glow.index.stored_fields import DocumentStore, DocumentWriter, parse_document
from glow.records import Document
from glow.runtime import Model
from glow_index_builder.building.builder import build
from glow_index_builder.deltas.plan import Changes, DeltaFullError, UpsertOptions
from glow_index_builder.deltas.upsert import DeltaResult, apply_changes
from glow_index_builder.input.lines import LineReader, RejectLog
from glow_index_builder.input.source import open_sources
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.options import BuildOptions, FileOptions, InputOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import disk_errors

PART = re.compile(r"(#(page|part)=\d+)+$")
REJECTS = "rejects-sync.jsonl"
READ, REJECTED, KEPT = "read.sqlite", "rejected.sqlite", "kept.jsonl"
OF_ONE_BUILD = ("threads", "reuse", "source")
"""Recorded options that a later build does not take over."""
RECORDED = {*FileOptions.model_fields, *InputOptions.model_fields}
COUNTS = ("new", "changed", "deleted", "unchanged", "kept")
Stored = tuple[str, int, str, str]
"""Id, row, and fields and metadata as stored JSON."""


class SyncOptions(FileOptions, UpsertOptions):
    """The input that the index is to equal."""

    source: str = option(..., "File or directory.", flag="--input")
    max_delete_share: float = option(
        0.2,
        "Largest ratio of documents that are deleted without a question.",
        ge=0.0,
        le=1.0,
        flag="--max-delete-ratio",
    )
    watch: bool = option(False, "Follow the input: sync again after each change of its files, until stopped.")


@dataclass(slots=True)
class Difference:
    """What the input changes in the live version."""

    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTS, 0)))
    changes: Changes = field(default_factory=Changes)  # incomplete if `is_large`
    is_large: bool = False  # whether there are more changes than a delta may have


def sync(options: SyncOptions, stages: Stages, confirm: Callable[[str], bool] | None = None) -> DeltaResult:
    """Makes the live version equal to the input; without one, builds it.

    `confirm` is asked before many documents are deleted; None refuses that.
    """
    if options.source == "-":
        raise ConfigError("sync may read its input twice: give a file or a directory, not -")
    root = IndexRoot(options.index_root)
    if root.live() is None:
        return _build(options, {}, Difference(), stages, None)
    with root.locked(options.wait_s):  # reports a root that cannot be written at once
        live = OpenVersion.open(root)
    recorded, chosen = live.manifest.parameters, options.model_dump(exclude_defaults=True)
    rest = recorded.keys() & SyncOptions.model_fields.keys() - chosen.keys() - {*OF_ONE_BUILD}
    options = SyncOptions(**{name: recorded[name] for name in rest}, **chosen).after(recorded)
    model = Model.open(options.model_folder)
    is_other = options.model is not None and model.hash != live.manifest.hashes.get("model")
    if not is_other:
        live.check_model(model)
    rejects_file = options.index_root / REJECTS
    with disk_errors(options.index_root), folder_for(root.path / f"{root.new_version()}-work") as work:
        with RejectLog(rejects_file) as rejects:
            with stages.stage("read", None, "bytes") as advance:
                skipped, unknown = _read(options, model, work, rejects, advance)
            read = DocumentStore(work / READ)
            rejects.require_share(read.count, options.max_reject_share, rejects_file)
        with stages.stage("compare"):
            difference = _compare(live, read, work, options.max_documents, keeps_all=unknown > 0)
        deleted, count = difference.counts["deleted"], live.documents.count
        words = f"the input lacks {deleted} of {count} documents of the index"
        if deleted > options.max_delete_share * count and not (confirm and confirm(f"{words}. Delete them?")):
            raise InputError(f"{words}; nothing was changed. If they may go, give --max-delete-ratio 1")
        result = None
        if not (difference.is_large or is_other):
            with suppress(DeltaFullError):
                parameters = options.model_dump(include=chosen.keys() & RECORDED)
                result = apply_changes(options, difference.changes, parameters, stages)
        if result is None:
            if "reranker" in live.manifest.parents:
                raise ConfigError(
                    "these changes need a new version, and the live one has token embeddings of a re-ranker: "
                    "give it to glow build --rerank"
                )
            result = _build(options, recorded, difference, stages, work / KEPT)
    counts = {name: result.report["counts"][name] for name in ("documents", "encoded", "reused")}
    counts = {**difference.counts, **counts, "rejects": rejects.count}
    report = {**result.report, "counts": counts, "rejects": dict(rejects.faults), "skipped": skipped}
    report["seconds"] = stages.report
    warning = result.warning
    if unknown and difference.counts["kept"]:
        warning = "a rejected line has no id that can be read, so no document was deleted"
    return DeltaResult(result.version, report, warning, rejects_file if rejects.count else None)


def _read(
    options: SyncOptions, model: Model, work: Path, rejects: RejectLog, advance: Advance
) -> tuple[dict[str, int], int]:
    """Stores documents, and ids of rejected lines; returns the skipped files by ending, and how many lines have no id."""
    unknown = 0
    reader = LineReader(model.preprocessor.schema.names, options.keys, options.max_line_bytes)
    sources = open_sources(options.source, options.exclude, options.base_url, options.text)
    with DocumentWriter(work / READ) as writer, DocumentWriter(work / REJECTED) as rejected:
        for source in sources:
            for line in source.lines(options.max_line_bytes):
                document = None
                try:
                    document = reader.read(line)
                    writer.add(document)
                except RecordError as error:
                    identifier = document.id if document else reader.known_id(line)
                    rejects.add(source.name, line.number, str(error), line.data, identifier)
                    if identifier is None:
                        unknown += 1
                    else:
                        with suppress(RecordError):  # it came before
                            rejected.add(Document(identifier, {}))
                advance(line.read_bytes)
    return sources.skipped, unknown


def _compare(
    live: OpenVersion,
    read: DocumentStore,
    work: Path,
    most: int,
    *,
    keeps_all: bool,  # whether no document may go, because any may be that of a rejected line
) -> Difference:
    """The difference; a file gets the lines of live documents that stay because their lines were rejected."""
    difference, rejected = Difference(), DocumentStore(work / REJECTED)
    counts, changes = difference.counts, difference.changes
    for old, new in _pairs(live.documents.by_id(), read.by_id()):
        if new is None:
            (identifier, *_) = old or ("",)
            # The pages of a file have its name as id, and their number.
            if keeps_all or rejected.find_all([identifier, PART.sub("", identifier)]) != [None, None]:
                counts["kept"] += 1
                document = live.documents.get(identifier)
                line = json.dumps({**document.metadata, **document.fields, "_id": identifier})
                with (work / KEPT).open("a", encoding="utf-8") as kept:
                    kept.write(f"{line}\n")
                continue
            counts["deleted"] += 1
            changes.deletes[identifier] = None
        elif old is not None and (old[2:] == new[2:] or _in_order(old) == _in_order(new)):
            counts["unchanged"] += 1
        else:
            counts["new" if old is None else "changed"] += 1
            changes.upserts[new[0]] = parse_document((new[0], *new[2:]))
        if len(changes) > most:
            difference.is_large = True
            changes.upserts.clear()
            changes.deletes.clear()
    return difference


def _pairs(
    before: Iterator[Stored], after: Iterator[Stored]
) -> Iterator[tuple[Stored | None, Stored | None]]:
    """Joins documents of two versions by their ids, both in code point order; None if one lacks the id."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        has_old = old is not None and (new is None or old[0] <= new[0])
        has_new = new is not None and (old is None or new[0] <= old[0])
        yield old if has_old else None, new if has_new else None
        old, new = next(before, None) if has_old else old, next(after, None) if has_new else new


def _in_order(stored: Stored) -> list[str]:
    """Fields and metadata with their keys in order; as text, because in Python 1 equals 1.0 and True."""
    return [json.dumps(json.loads(text), sort_keys=True) for text in stored[2:]]


def _build(
    options: SyncOptions,
    recorded: dict[str, Any],  # parameters of the live version's manifest
    difference: Difference,
    stages: Stages,
    kept: Path | None,  # lines of documents to keep, which the input lacks
) -> DeltaResult:
    """Builds a version with the options of the live one, except for those that are given."""
    names = BuildOptions.model_fields.keys()
    values = {name: value for name, value in recorded.items() if name not in OF_ONE_BUILD}
    values |= options.model_dump(exclude_defaults=True)
    result = build(BuildOptions(**{name: values[name] for name in values.keys() & names}), stages, kept)
    counts = result.report["counts"]
    counts["encoded"] = counts["documents"] - counts["reused"]
    if not recorded:
        difference.counts["new"] = counts["documents"]
    report = {
        "status": "published",
        "version": result.version,
        "base": result.version,
        "counts": {**difference.counts, **counts},
        "skipped": result.report["skipped"],
        "seconds": result.report["seconds"],
    }
    return DeltaResult(result.version, report, rejects_file=result.rejects_file)
