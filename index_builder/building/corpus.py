"""The first stage reads the input once into stored documents, rejects and term statistics.

Later stages read the document store, not the input. So standard input needs no copy, and a file that changes
meanwhile does no harm. Memory does not grow with the corpus, except for the term statistics, which `max_words`
bounds. The store detects duplicate ids.
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
    """Counts of the first stage.

    Attributes:
        documents: stored documents.
        read_bytes: bytes of input.
        terms: statistics of the stored documents.
        stems: statistics of the analyzer's terms; the same as `terms` if the analyzer does not change words.
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
        preprocessor: of the model; its schema names the fields.
        options: renames and limits.
        store: the document store to write.
        rejects: receives invalid lines.
        advance: called with the bytes read.
        analyzer: makes the terms that are counted in addition to words.

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
