"""The documents of a build: one step reads the input, another leaves out documents that cannot be encoded.

The first stage reads the input once into stored documents, rejects and term statistics. Later stages read the document
store, not the input. So standard input needs no copy, and a file that changes meanwhile does no harm. Memory does not
grow with the corpus, except for the term statistics, which `max_words` bounds. The store detects duplicate ids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from glow.errors import RecordError
from glow.index.passages import PassagesOptions
from glow.index.stored_fields import DOCUMENTS_FILE, DocumentStore, DocumentWriter
from glow.records import Document
from glow.runtime import Model
from glow.text import Analyzer, CorpusCounter, LongDocuments, Preprocessor, TermTable, field_words
from glow_index_builder.building.work import StagedWork, Step
from glow_index_builder.input import REJECTS_FILE, LineReader, RejectLog, Source
from glow_index_builder.options import CommonOptions


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts of the first stage."""

    documents: int  # stored documents
    read_bytes: int  # bytes of input
    terms: TermTable  # statistics of the stored documents
    # statistics of the analyzer's terms; the same as `terms` if the analyzer does not change words
    stems: TermTable
    long: LongDocuments


def read_corpus(
    sources: Sequence[Source],
    preprocessor: Preprocessor,
    options: CommonOptions,
    store: Path,
    rejects: RejectLog,
    advance: Callable[[int], None],  # called with the bytes read
    analyzer: Analyzer,
) -> CorpusStats:
    """Reads every line once."""
    reader = LineReader(preprocessor.schema.names, options.rename, options.max_line_bytes)
    counter = CorpusCounter(analyzer, options.max_words)
    cutter = PassagesOptions.model_validate(options, from_attributes=True).cutter(preprocessor)
    long = LongDocuments(preprocessor.schema.document_tokens)
    read_bytes = 0
    with DocumentWriter(store) as writer:
        for source in sources:
            for line in source.lines(options.max_line_bytes):
                document: Document | None = None
                try:
                    document = reader.read(line)
                    writer.add(document)
                except RecordError as error:
                    identifier = document.id if document else reader.known_id(line)
                    rejects.add(source.name, line.number, str(error), line.data, identifier)
                else:
                    words = field_words(document, preprocessor.schema, preprocessor.pieces)
                    counter.add(words)
                    if cutter is not None:
                        long.add(*cutter.sizes(document, words[cutter.field]))
                read_bytes += line.read_bytes
                advance(line.read_bytes)
    return CorpusStats(writer.count, read_bytes, *counter.tables(), long)


READ = "read"
CORPUS_TERMS, CORPUS_STEMS = "corpus", "corpus-stems"
"""Directories of the read step: statistics of the documents' words and of the analyzer's terms."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents after a step."""

    stats: CorpusStats  # counts and term statistics of the documents that were read
    rejects: Mapping[str, int]  # fault -> number of lines


def read_documents(
    staged: StagedWork,
    sources: Sequence[Source],
    model: Model,
    options: CommonOptions,
    analyzer: Analyzer,
    keep_rejects: Path,
) -> Documents:
    """Reads the input into a store."""
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
            counts = {"documents": stats.documents, "read_bytes": stats.read_bytes}
            step.values = {**counts, "rejects": rejects.counts, "long": asdict(stats.long)}
    return _documents(step)


def leave_out(
    staged: StagedWork,
    poison: Mapping[int, str],  # row of each document to leave out -> the cause
    options: CommonOptions,
    keep_rejects: Path,
) -> Documents:
    """Returns the documents that can be encoded; the others become rejects.

    The term statistics still count them; otherwise every vector would have to be encoded again.
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
    long = LongDocuments(**values["long"])
    stats = CorpusStats(values["documents"], values["read_bytes"], terms, table, long)
    return Documents(stats, values["rejects"]["faults"])


def _unlink_from(source: Path, link: Path) -> None:
    """Copies a hard-linked file so that it can be written; without a source, creates an empty file."""
    data = source.read_bytes() if source.is_file() else b""
    link.unlink(missing_ok=True)
    link.write_bytes(data)
