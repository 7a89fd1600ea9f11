"""The input of a set, read once: which lines count, to which shard each falls, and the statistics of all of them."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from glow.errors import BuildError, RecordError
from glow.records import Document
from glow.runtime import Model
from glow.search import shard_of
from glow.text import Analyzer, CorpusCounter, field_words, is_lexical, lexical_words, select_terms
from glow_index_builder.building import FrozenStatistics
from glow_index_builder.input import LineReader, RejectLog, Source
from glow_index_builder.options import BuildOptions

__all__ = ["Parts", "part_file", "split_documents", "to_line"]

IDS_FILE = "ids.tmp"


@dataclass(frozen=True, slots=True)
class Parts:
    """What came of the input.

    Attributes:
        documents: of each shard.
        frozen: statistics of all documents.
    """

    documents: Sequence[int]
    frozen: FrozenStatistics


def part_file(folder: Path, shard: int) -> Path:
    """Where the documents of a shard lie."""
    return folder / f"{shard}.jsonl"


def to_line(document: Document) -> bytes:
    """A document as a line of `corpus.jsonl`, with the names of the model's fields."""
    value = {"_id": document.id, **document.fields, **document.metadata}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def split_documents(
    sources: Sequence[Source],
    model: Model,
    options: BuildOptions,
    folder: Path,
    rejects: RejectLog,
    advance: Callable[[int], None],
) -> Parts:
    """Reads every line once and writes it to its shard's file; of several lines with one id the first counts.

    Args:
        sources: the input files in order.
        model: whose schema names the fields, and whose words count.
        options: renames, limits, analyzer, number of shards.
        folder: where the files go.
        rejects: where bad lines go.
        advance: told the bytes read.

    Raises:
        BuildError: if a shard would be empty.
        InputError: if a file cannot be read.
    """
    own = model.preprocessor
    reader = LineReader(own.schema.names, options.rename, options.max_line_bytes)
    analyzer = Analyzer(options.analyzer if options.lexical else "plain")
    counter = CorpusCounter(analyzer, options.max_words)
    counts, words = [0] * options.shards, 0
    ids = folder / IDS_FILE
    with ExitStack() as stack:
        connection = stack.enter_context(closing(sqlite3.connect(ids)))
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        files = [stack.enter_context(part_file(folder, shard).open("wb")) for shard in range(options.shards)]
        for source in sources:
            for line in source.lines(options.max_line_bytes):
                document: Document | None = None
                try:
                    document = reader.read(line)
                    _require_new(connection, document.id)
                except RecordError as error:
                    identifier = document.id if document else reader.known_id(line)
                    rejects.add(source.name, line.number, str(error), line.data, identifier)
                else:
                    shard = shard_of(document.id, options.shards)
                    files[shard].write(to_line(document))
                    counts[shard] += 1
                    counter.add(field_words(document, own.schema, own.pieces))
                    words += _length(lexical_words(document, own.schema, own.pieces))
                advance(line.read_bytes)
    ids.unlink()
    _require_full(counts)
    terms, stems = counter.tables()
    table = select_terms(options.term_stats, terms, own.terms)
    stem_table = (
        table if stems is terms else select_terms(options.term_stats, stems, analyzer.table(own.terms))
    )
    return Parts(counts, FrozenStatistics(table, stem_table, max(words / sum(counts), 1.0)))


def _require_new(connection: sqlite3.Connection, identifier: str) -> None:
    try:
        connection.execute("INSERT INTO ids VALUES (?)", (identifier,))
    except sqlite3.IntegrityError as error:
        raise RecordError(f"duplicate '_id': {identifier!r} came before, the first one is kept") from error


def _length(words: Iterable[str]) -> int:
    """Words that a lexical index counts."""
    return sum(is_lexical(word) for word in words)


def _require_full(counts: Sequence[int]) -> None:
    if sum(counts) and not all(counts):
        raise BuildError(
            f"{sum(counts)} documents over {len(counts)} shards leave shard {counts.index(0)} empty; give fewer --shards"
        )
