"""The documents of a build: one step reads them, another leaves out those that cannot be encoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.index.stored_fields import DOCUMENTS_FILE, DocumentStore, DocumentWriter
from glow.runtime import Model
from glow.text import Analyzer, TermTable
from glow_index_builder.building.corpus import CorpusStats, read_corpus
from glow_index_builder.building.staged import StagedWork
from glow_index_builder.building.work import Step
from glow_index_builder.input import REJECTS_FILE, RejectLog, Source
from glow_index_builder.options import CommonOptions

__all__ = ["READ", "Documents", "leave_out", "read_documents"]

READ = "read"
CORPUS_TERMS, CORPUS_STEMS = "corpus", "corpus-stems"
"""Directories of the read step: statistics of the documents' words and of the analyzer's terms."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents after a step.

    Attributes:
        stats: counts and term statistics of the documents that were read.
        rejects: fault -> number of lines.
    """

    stats: CorpusStats
    rejects: Mapping[str, int]


def read_documents(
    staged: StagedWork,
    sources: Sequence[Source],
    model: Model,
    options: CommonOptions,
    analyzer: Analyzer,
    keep_rejects: Path,
) -> Documents:
    """Reads the input into a store.

    Args:
        staged: the steps of the build.
        sources: the input files in order.
        model: its schema names the fields.
        options: renames and limits.
        analyzer: makes the terms that are counted in addition to words.
        keep_rejects: path for `rejects.jsonl` if there are too many.

    Raises:
        InputError: if a file cannot be read.
        BuildError: if there are too many rejects, or no document.
    """
    sizes = [source.size_bytes for source in sources]
    total = sum(size for size in sizes if size) if all(sizes) else None
    with staged.step(READ, total, "bytes") as (step, advance):
        if not step.is_done:
            with RejectLog(step.folder / REJECTS_FILE) as rejects:
                store = step.folder / DOCUMENTS_FILE
                stats = read_corpus(sources, model.preprocessor, options, store, rejects, advance, analyzer)
                rejects.require_share(stats.documents, options.max_reject_share, keep_rejects)
            stats.terms.save(step.folder / CORPUS_TERMS)
            if stats.stems is not stats.terms:
                stats.stems.save(step.folder / CORPUS_STEMS)
            step.values = {
                "documents": stats.documents,
                "read_bytes": stats.read_bytes,
                "rejects": rejects.counts,
            }
    return _documents(step)


def leave_out(
    staged: StagedWork, poison: Mapping[int, str], options: CommonOptions, keep_rejects: Path
) -> Documents:
    """Returns the documents that can be encoded; the others become rejects.

    The term statistics still count them; otherwise every vector would have to be encoded again.

    Args:
        staged: steps of the build.
        poison: row of each document to leave out -> the cause.
        options, keep_rejects: as for `read_documents`.

    Raises:
        BuildError: if there are too many rejects, or no document.
    """
    before = staged.done[READ]
    store = DocumentStore(before.folder / DOCUMENTS_FILE)
    with staged.step("poison", store.count, "documents", instead_of=READ) as (step, advance):
        if not step.is_done:
            before.link(step.folder, REJECTS_FILE, CORPUS_TERMS, CORPUS_STEMS)
            _unlink_from(before.folder / REJECTS_FILE, step.folder / REJECTS_FILE)
            with (
                RejectLog(step.folder / REJECTS_FILE, before.values["rejects"]) as rejects,
                DocumentWriter(step.folder / DOCUMENTS_FILE) as writer,
            ):
                for row, document in enumerate(store.scan()):
                    if row not in poison:
                        writer.add(document)
                    else:
                        start = " ".join(text for texts in document.fields.values() for text in texts)
                        reason = f"cannot be encoded: {poison[row]}"
                        rejects.add(None, None, reason, start.encode(), document.id)
                    advance(1)
                rejects.require_share(writer.count, options.max_reject_share, keep_rejects)
            step.values = {**before.values, "documents": writer.count, "rejects": rejects.counts}
    return _documents(step)


def _documents(step: Step) -> Documents:
    values, stems = step.values, step.folder / CORPUS_STEMS
    terms = TermTable.load(step.folder / CORPUS_TERMS)
    table = TermTable.load(stems) if stems.is_dir() else terms
    stats = CorpusStats(values["documents"], values["read_bytes"], terms, table)
    return Documents(stats, values["rejects"]["faults"])


def _unlink_from(source: Path, link: Path) -> None:
    """Copies a hard-linked file so that it can be written; without a source, creates an empty file."""
    data = source.read_bytes() if source.is_file() else b""
    link.unlink(missing_ok=True)
    link.write_bytes(data)
