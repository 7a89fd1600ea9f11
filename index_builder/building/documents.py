"""The documents of a build: one step reads the input, another leaves out what cannot be encoded; and their components.

The first step reads the input once, so standard input needs no copy, and a file that changes meanwhile does no harm.
Memory does not grow with the corpus, except for the term statistics, which `max_words` bounds.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from glow.collection import GENERATED
from glow.commands import Advance
from glow.errors import ArtifactError, BuildError, RecordError
from glow.index import AnyComponent, Encoded, ImportRows, RangeTask, Rules, Segment
from glow.index.milvus import store_segment
from glow.index.passages import PassagesOptions
from glow.index.postings import PostingsRules
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, VectorRules
from glow.records import Document
from glow.runtime import Model
from glow.text import Analyzer, CorpusCounter, LongDocuments, Preprocessor, TermTable, field_words
from glow_index_builder.building.work import Step, WorkFolder
from glow_index_builder.input.lines import REJECTS_FILE, LineReader, RejectLog
from glow_index_builder.input.source import Source
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts of the first stage."""

    documents: int  # stored documents
    read_bytes: int  # bytes of input
    terms: TermTable  # statistics of the stored documents, as far as the encoder reads them
    stems: TermTable  # of the lexical index's terms; the same as `terms` if these are its terms
    vocabulary: TermTable  # of all words of the lexical index; the same as `terms` if these are all
    long: LongDocuments
    rejects: Mapping[str, int] = field(default_factory=dict)  # fault -> number of lines
    ids: Mapping[str, int] = field(default_factory=dict)  # key -> number of ids taken from it
    forms: Mapping[str, int] = field(default_factory=dict)  # program's format -> number of its documents
    renamed: Sequence[str] = ()  # keys of `rename` that some record has


def read_corpus(
    sources: Sequence[Source],
    preprocessor: Preprocessor,
    options: CommonOptions,
    store: Path,
    rejects: RejectLog,
    advance: Callable[[int], None],  # called with the bytes read
    words: PostingsRules,  # of the lexical index
) -> CorpusStats:
    """Reads every line once."""
    schema, pieces, lexical = preprocessor.schema, preprocessor.pieces, words.fields
    reader = LineReader(preprocessor.schema.names, options.keys, options.max_line_bytes)
    counter = CorpusCounter(Analyzer(words.analyzer), options.max_words, own=bool(lexical.text))
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
                    repeats = document is not None and reader.used.ids.keys() == {GENERATED}
                    start = "duplicate content: " if repeats else ""
                    rejects.add(source.name, line.number, f"{start}{error}", line.data, identifier)
                else:
                    fields = field_words(document, schema, pieces)
                    weak = lexical.weak_words(document, schema, pieces)
                    counter.add(fields, lexical.own_words(document, pieces), weak)
                    if cutter is not None:
                        long.add(*cutter.sizes(document, fields[cutter.field]))
                read_bytes += line.read_bytes
                advance(line.read_bytes)
    used = reader.used
    return CorpusStats(
        writer.count, read_bytes, *counter.tables(), long, {}, used.ids, reader.forms, sorted(used.renamed)
    )


READ = "read"
CORPUS_TERMS, CORPUS_STEMS, CORPUS_WORDS = "corpus", "corpus-stems", "corpus-words"
"""Directories of the read step: statistics of the encoder's words, and of the lexical index's terms and words."""
COUNTS = ("documents", "read_bytes", "ids", "forms", "renamed")
"""Members of `CorpusStats` that the read step records as they are."""


def read_documents(
    work: WorkFolder,
    sources: Sequence[Source],
    model: Model,
    options: CommonOptions,
    words: PostingsRules,
    keep_rejects: Path,
) -> CorpusStats:
    """Reads the input into a store."""
    sizes = [source.size_bytes for source in sources]
    total = sum(size for size in sizes if size) if all(sizes) else None
    with work.step(READ, total, "bytes") as step:
        if not step.is_done:
            with RejectLog(step.folder / REJECTS_FILE) as rejects:
                store = step.folder / DOCUMENTS_FILE
                stats = read_corpus(sources, model.preprocessor, options, store, rejects, step.advance, words)
                rejects.require_share(stats.documents, options.max_reject_share, keep_rejects)
            stats.terms.save(step.folder / CORPUS_TERMS)
            for name, table in ((CORPUS_STEMS, stats.stems), (CORPUS_WORDS, stats.vocabulary)):
                if table is not stats.terms:
                    table.save(step.folder / name)
            counts = {name: getattr(stats, name) for name in COUNTS}
            step.values = {**counts, "rejects": rejects.counts, "long": asdict(stats.long)}
    return _documents(step)


def leave_out(
    work: WorkFolder,
    poison: Mapping[int, str],  # row of each document to leave out -> the cause
    options: CommonOptions,
    keep_rejects: Path,
) -> CorpusStats:
    """Returns the documents that can be encoded; the others become rejects, but stay in the term statistics."""
    before = work.done[READ]
    store = DocumentStore(before.folder / DOCUMENTS_FILE)
    with work.step("poison", store.count, "documents", instead_of=READ) as step:
        if not step.is_done:
            before.link(step.folder, CORPUS_TERMS, CORPUS_STEMS, CORPUS_WORDS)
            if (rejected := before.folder / REJECTS_FILE).is_file():
                shutil.copyfile(rejected, step.folder / REJECTS_FILE)
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
                    step.advance(1)
                rejects.require_share(writer.count, options.max_reject_share, keep_rejects)
            step.values = {**before.values, "documents": writer.count, "rejects": rejects.counts}
    return _documents(step)


def _documents(step: Step) -> CorpusStats:
    terms = TermTable.load(step.folder / CORPUS_TERMS)
    stems, vocabulary = (
        TermTable.load(step.folder / name) if (step.folder / name).is_dir() else terms
        for name in (CORPUS_STEMS, CORPUS_WORDS)
    )
    return CorpusStats(
        **{name: step.values[name] for name in COUNTS},
        terms=terms,
        stems=stems,
        vocabulary=vocabulary,
        long=LongDocuments(**step.values["long"]),
        rejects=step.values["rejects"]["faults"],
    )


@dataclass(slots=True, eq=False)
class MadeCorpus:
    """Documents and the components that are built so far."""

    model: Model  # as `Corpus` says
    terms: TermTable
    counted: TermTable
    counted_terms: TermTable
    vocabulary: TermTable
    made: Segment
    notes: Path
    threads: int
    spread: Callable[[RangeTask], ImportRows] | None = None
    encoded: Encoded = field(init=False)  # as `Corpus` says; available once the texts are encoded
    _advance: Advance = field(init=False, default=lambda count: None)

    def documents(self) -> Iterator[Document]:
        return self.made[STORED_FIELDS].scan()

    def advance(self, count: int) -> None:
        self._advance(count)

    def write_to(self, folder: Path, earlier: tuple[Path, ...], advance: Advance) -> None:
        """Sets the directory that the next component writes into."""
        self.made = replace(self.made, folder=folder, earlier=earlier)
        self._advance = advance

    def open(self, component: AnyComponent, folders: tuple[Path, ...]) -> None:
        """Opens a finished component."""
        self.made = replace(self.made, folder=folders[0], earlier=folders[1:])
        try:
            reader = component.open(self.made)
        except ArtifactError as error:
            raise BuildError(f"the {component.label} that were built cannot be opened: {error}") from error
        if reader is not None:
            self.made = self.made.with_reader(component, reader, component.first(reader))


def store_rows(folder: Path, made: Segment, rules: Mapping[str, Rules], notes: Path, stages: Stages) -> None:
    """Moves the rows, if the rules of vectors name a server."""
    vectors = rules[VECTORS.name]
    if not isinstance(vectors, VectorRules) or vectors.store is None:
        return
    with stages.stage("store", made.rows.documents, "documents") as advance:
        store_segment(made, folder, vectors.store, notes, advance)
