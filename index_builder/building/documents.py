"""The documents of a build: one step reads them, another leaves out what cannot be encoded."""

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
"""Folders of the read step: the tables of the documents' words, and of the terms that the analyzer makes of them."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents as they are after a step.

    Attributes:
        stats: counts and the term tables of what was read.
        rejects: what is wrong -> lines.
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
        staged: steps of the build.
        sources: the input files in order.
        model: whose schema names the fields.
        options: renames and limits.
        analyzer: by which terms are counted beside words.
        keep_rejects: where `rejects.jsonl` goes if there are too many.

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
    """The documents that can be encoded; the others become rejects.

    The term table still counts them: with another one, every vector would have to be made again.

    Args:
        staged: steps of the build.
        poison: row of each that is left out -> why.
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
    """Makes a file of its own from a hard link, which must not be written to; without a source, an empty one."""
    data = source.read_bytes() if source.is_file() else b""
    link.unlink(missing_ok=True)
    link.write_bytes(data)
