"""Adds, replaces and deletes documents: publishes a version of the same base with a new delta, in seconds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import IndexRoot, folder_for
from glow.commands import Advance
from glow.errors import ConfigError, MismatchError
from glow.index import (
    COMPONENTS,
    DELTA,
    MODEL_FOLDER,
    DeltaHeader,
    DeltaRows,
    MergeSource,
    Segment,
    files_of,
    joined_order,
    merge_segments,
    open_delta,
    write_delta_rows,
)
from glow.index.columns import COLUMNS
from glow.index.passages import PASSAGES, TextsOfDocuments
from glow.index.postings import POSTINGS, PostingsRules
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS, DocumentWriter
from glow.records import Document
from glow.runtime import Model
from glow.text import Analyzer, CorpusCounter, LexicalFields, field_words
from glow_index_builder.building.documents import MadeCorpus
from glow_index_builder.deltas.plan import (
    UNBOUNDED,
    ChangeOptions,
    Changes,
    DeleteOptions,
    Plan,
    UpsertOptions,
    deletion,
    plan_changes,
    read_changes,
)
from glow_index_builder.encoding.blocks import EncodedBlocks
from glow_index_builder.encoding.schedule import encode_texts
from glow_index_builder.encoding.text_encoder import KnownVectors, TextEncoder, encode_jobs, texts_with_known
from glow_index_builder.input.lines import LineReader, RejectLog
from glow_index_builder.input.source import Source, Sources, open_lines, open_sources
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.options import InputOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import VersionWriter, derive, disk_errors


def write_segment(
    documents: Iterable[Document],
    live: OpenVersion,
    model: Model | None,  # None if no documents are given
    folder: Path,
    advance: Advance,
    threads: int = 1,  # encoding threads, >= 1
) -> tuple[Segment, int]:
    """Writes documents as a segment, and opens it; returns also how many took their vectors from the live version."""
    folder.mkdir()
    with DocumentWriter(folder / DOCUMENTS_FILE) as writer:
        for document in documents:
            writer.add(document)
    corpus, rules = _corpus(live, model, folder, writer.count, threads), live.rules
    for component in COMPONENTS:
        if component.name in rules:
            component.prepare(corpus, rules[component.name])
            if component.prepares and corpus.made.has_any(component.paths):
                corpus.open(component, (folder,))
    if model is None:
        corpus.encoded = EncodedBlocks(corpus.notes, (), live.manifest.counts["dimensions"], {})
    else:
        jobs = encode_jobs(corpus.made, rules)
        encoder = TextEncoder.open(model, live.terms, "cpu", jobs)
        # The base's model, statistics and rules of passages hold, so equal fields are equal input of the encoder.
        known = None if jobs else KnownVectors(live)
        texts_of = TextsOfDocuments(corpus.made.get(PASSAGES))
        texts = texts_with_known(enumerate(corpus.documents()), texts_of, known)
        corpus.encoded = encode_texts(texts, encoder, threads, corpus.notes, advance, jobs)
    for component in COMPONENTS:
        if component.name in rules:
            component.build(corpus, rules[component.name])
            corpus.open(component, (folder,))
    return corpus.made, corpus.encoded.reused


def _corpus(live: OpenVersion, model: Model | None, folder: Path, documents: int, threads: int) -> MadeCorpus:
    """Stores the new documents in the directory. They take the idf of their terms from the base's statistics."""
    segment, own = live.new_segment(folder, documents), live.preprocessor
    words = live.rules.get(POSTINGS.name)
    fields = words.fields if isinstance(words, PostingsRules) else LexicalFields()
    counter = CorpusCounter(Analyzer("plain"))
    for document in STORED_FIELDS.open(segment).scan():
        weak = fields.weak_words(document, own.schema, own.pieces)
        counted = field_words(document, own.schema, own.pieces)
        counter.add(counted, fields.own_words(document, own.pieces), weak)
    notes = folder.with_name(f"{folder.name}-work")
    notes.mkdir()
    if model is None:  # the part of it that the version holds, which cannot encode documents
        model = Model(live.folder / MODEL_FOLDER, live.manifest, live.manifest.hashes["model"], own)
    corpus = MadeCorpus(model, live.terms, *counter.tables(), segment, notes, threads)
    corpus.open(STORED_FIELDS, (folder,))
    return corpus


@dataclass(frozen=True, slots=True)
class DeltaResult:
    """The result of a change."""

    version: str | None  # the new version; None if there was nothing to change
    report: dict[str, Any]  # as docs/updates.md describes it
    warning: str = ""  # a warning to print; may be empty
    rejects_file: Path | None = None  # the rejected lines, if there are any


def upsert(options: UpsertOptions, stages: Stages) -> DeltaResult:
    """Adds documents, or replaces those with the same ids, and publishes the result."""
    return _Change(options, stages).run()


def apply_changes(
    options: UpsertOptions, changes: Changes, parameters: Mapping[str, Any], stages: Stages
) -> DeltaResult:
    """Applies changes that are in memory as one version, with parameters in its manifest."""
    return _Change(options, stages, parameters).apply(changes)


def delete(options: DeleteOptions, stages: Stages) -> DeltaResult:
    """Deletes documents by their ids or a filter and publishes the result; unknown ids are counted, not an error."""
    if options.source:
        return _Change(options, stages).run()
    try:
        condition = json.loads(options.filter) if options.filter else None
    except ValueError as error:
        raise ConfigError(f"--filter is not JSON: {error}") from error
    changes = deletion(IndexRoot(options.index_root), condition, means_all=options.all)
    unbounded = {"max_documents": UNBOUNDED, "max_share": float(UNBOUNDED)}
    return _Change(options.model_copy(update=unbounded), stages).apply(changes)


class _Change:
    """One command from start to end."""

    def __init__(
        self, options: ChangeOptions, stages: Stages, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.options, self.stages, self.parameters = options, stages, parameters or {}
        self.root = IndexRoot(options.index_root)
        self.root.current()

    def run(self) -> DeltaResult:
        """Reads the input, which may be slow, before it locks the root."""
        options = self.options
        with self.root.locked(options.wait_s):  # reports a root that cannot be written at once
            first = OpenVersion.open(self.root)
        sources = self._sources(first)
        # Checked before the input is read, and before other commands wait.
        model = self._model(first)
        version = self.root.new_version()
        rejects_file = options.index_root / f"rejects-{version}.jsonl"
        with disk_errors(options.index_root):
            with RejectLog(rejects_file) as rejects:
                changes = self._read(sources, first, rejects, rejects_file)
            with self.root.locked(options.wait_s):
                live = OpenVersion.open(self.root)
                if live.manifest.hashes != first.manifest.hashes:
                    raise MismatchError(
                        f"{live.folder.name} with another model or term table went live meanwhile; run the command again"
                    )
                result = self._change(live, changes, model, version)
        result.report["counts"] |= {"rejects": rejects.count, "repeated": changes.repeated}
        figures = {"rejects": dict(rejects.faults), "skipped": sources.skipped, "seconds": self.stages.report}
        report = {**result.report, **figures}
        return DeltaResult(result.version, report, result.warning, rejects_file if rejects.count else None)

    def apply(self, changes: Changes) -> DeltaResult:
        """As `run`, with changes that are in memory."""
        with disk_errors(self.options.index_root), self.root.locked(self.options.wait_s):
            live = OpenVersion.open(self.root)
            model = self._model(live) if changes.upserts or changes.patches else None
            result = self._change(live, changes, model, self.root.new_version())
        result.report["seconds"] = self.stages.report
        return result

    def _model(self, live: OpenVersion) -> Model | None:
        """The model that encodes documents; None if the command reads none."""
        if not isinstance(self.options, UpsertOptions):
            return None
        model = Model.open(self.options.model_folder)
        live.check_model(model)
        return model

    def _sources(self, live: OpenVersion) -> Sources:
        """The files of documents, as the build found and named them, or of ids."""
        if not isinstance(self.options, UpsertOptions):
            return open_lines(self.options.source)
        built = live.manifest.parameters
        text = self.options.after(built).text
        return open_sources(self.options.source, built.get("exclude", ()), built.get("base_url", ""), text)

    def _read(
        self, sources: list[Source], live: OpenVersion, rejects: RejectLog, rejects_file: Path
    ) -> Changes:
        options = self.options
        own = options if isinstance(options, UpsertOptions) else InputOptions()
        keys = own.after(live.manifest.parameters).keys
        reader = LineReader(live.preprocessor.schema.names, keys, options.max_line_bytes)
        with self.stages.stage("read", None, "bytes") as advance:
            changes = read_changes(sources, reader, options, rejects, advance)
        if rejects.count:
            rejects.require_share(len(changes), options.max_reject_share, rejects_file)
        return changes

    def _change(self, live: OpenVersion, changes: Changes, model: Model | None, version: str) -> DeltaResult:
        plan = plan_changes(live, changes, self.options.max_share, self.options.max_documents)
        report: dict[str, Any] = {
            "status": "unchanged",
            "version": live.folder.name,
            "base": live.manifest.parents.get("base", {}).get("name", live.folder.name),
            "counts": {**plan.counts, "documents": live.documents.count},
            "delta": plan.size(),
        }
        if not plan.is_change:
            return DeltaResult(None, report)
        self._derive(live, plan, model, version)
        manifest = self.root.manifest(version)
        report |= {"status": "published", "version": version, "base": manifest.parents["base"]["name"]}
        report["counts"] |= {**plan.counts, "documents": manifest.counts["documents"]}
        return DeltaResult(version, report, plan.warning())

    def _derive(self, live: OpenVersion, plan: Plan, model: Model | None, version: str) -> None:
        """Writes the version, opens its new files and publishes it."""
        base = live.manifest.parents.get("base", {"name": live.folder.name, "hash": live.manifest.hash})
        with folder_for(self.root.path / f"{version}-work") as work:
            sources = self._merge_sources(live, plan, model, work)
            with self.stages.stage("write"):
                derive(
                    self.root,
                    live.folder.name,
                    {"base": base},
                    self.parameters,
                    lambda folder: self._write(folder, live, plan, sources),
                    lambda name: not name.startswith(DELTA),
                    version,
                )
        with self.stages.stage("publish"):
            manifest = self.root.manifest(version)
            VersionWriter(self.root, version).publish(
                lambda folder: open_delta(folder, manifest, files_of(folder, manifest))
            )

    def _merge_sources(
        self, live: OpenVersion, plan: Plan, model: Model | None, work: Path
    ) -> list[MergeSource]:
        """What is left of the previous delta, and the new documents."""
        threads = self.options.thread_count if isinstance(self.options, UpsertOptions) else 1
        sources = [] if live.delta is None else [MergeSource(live.delta.segment, plan.stays)]
        with self.stages.stage("encode", len(plan.documents), "documents") as advance:
            if plan.documents or not sources:
                encodes = model if plan.documents else None
                new, reused = write_segment(plan.documents, live, encodes, work / "new", advance, threads)
                plan.counts.update(encoded=len(plan.documents) - reused, reused=reused)
                sources.append(MergeSource(new, np.ones(new.rows.documents, np.bool_)))
        return sources

    def _write(
        self, folder: Path, live: OpenVersion, plan: Plan, sources: list[MergeSource]
    ) -> dict[str, int]:
        target = folder / DELTA
        target.mkdir()
        segment = live.new_segment(target, sum(each.documents for each in sources))
        segment = merge_segments(sources, segment, delta=True)
        base, gone = live.base, np.zeros(live.base.rows.documents, np.bool_)
        gone[plan.tombstones] = True
        header = DeltaHeader(
            base_documents=base.rows.documents,
            base_vectors=base.rows.count("vector"),
            documents=segment.rows.documents,
            vectors=segment.rows.count("vector"),
            tombstones=len(plan.tombstones),
        )
        ids = [document.id for document in segment[STORED_FIELDS].scan()]
        order = joined_order(base[COLUMNS].order, base[STORED_FIELDS], ids)
        write_delta_rows(target, DeltaRows(header, plan.tombstones, order))
        counts = {
            "documents": header.base_documents - header.tombstones + header.documents,
            "delta_documents": header.documents,
            "tombstones": header.tombstones,
        }
        if base.rows.first is not None:
            left = header.base_vectors - len(base.rows.held("vector", gone))
            counts["passages"] = left + header.vectors
        return counts
