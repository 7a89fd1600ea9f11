"""First stage: lines become stored documents, rejects and term statistics, in one reading of the input.

The document store is what later stages read, so the input is read once (standard input needs no copy, and a file that
changes meanwhile does no harm), and which documents count is decided in one place. Memory does not grow with
the corpus, but for the term table, which `max_words` bounds: ids are told apart by the store.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.errors import RecordError
from glow.index.stored_fields import DocumentWriter
from glow.records import Document
from glow.text import Analyzer, CorpusCounter, Preprocessor, TermTable, field_words
from glow_index_builder.input import LineReader, RejectLog, Source
from glow_index_builder.options import CommonOptions

__all__ = ["CorpusStats", "read_corpus"]


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """What the first stage saw.

    Attributes:
        documents: stored documents.
        read_bytes: input read.
        terms: statistics of the stored documents.
        stems: the same of the terms that the analyzer makes of their words; `terms` where it leaves words as they are.
    """

    documents: int
    read_bytes: int
    terms: TermTable
    stems: TermTable


def read_corpus(
    sources: Sequence[Source],
    preprocessor: Preprocessor,
    options: CommonOptions,
    store: Path,
    rejects: RejectLog,
    advance: Callable[[int], None],
    analyzer: Analyzer,
) -> CorpusStats:
    """Reads every line once.

    Args:
        sources: the input files in order.
        preprocessor: the model's; its schema names the fields.
        options: renames and limits.
        store: document store to make.
        rejects: where bad lines go.
        advance: told the bytes read.
        analyzer: by which terms are counted beside words.

    Raises:
        InputError: if a file cannot be read.
    """
    reader = LineReader(preprocessor.schema.names, options.rename, options.max_line_bytes)
    counter = CorpusCounter(analyzer, options.max_words)
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
                    counter.add(field_words(document, preprocessor.schema, preprocessor.pieces))
                read_bytes += line.read_bytes
                advance(line.read_bytes)
    return CorpusStats(writer.count, read_bytes, *counter.tables())
