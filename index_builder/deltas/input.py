"""The input of `upsert` and `delete`: documents and ids, read line by line. Invalid lines become rejects."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from glow.collection import parse_document
from glow.errors import InputError, RecordError
from glow.records import Document
from glow_index_builder.input import Line, LineReader, RejectLog, Source

__all__ = ["Changes", "read_deletes", "read_upserts"]

Advance = Callable[[int], None]


@dataclass(slots=True)
class Changes:
    """Changes to apply to an index.

    Attributes:
        upserts: id -> document, which is added or replaces the document with its id.
        deletes: ids to delete, in input order; none is among the upserts.
        repeated: number of lines whose id a later line repeats; the last one counts.
    """

    upserts: dict[str, Document] = field(default_factory=dict)
    deletes: dict[str, None] = field(default_factory=dict)
    repeated: int = 0

    def __len__(self) -> int:
        return len(self.upserts) + len(self.deletes)


def read_upserts(
    sources: Sequence[Source],
    reader: LineReader,
    max_line_bytes: int,
    most: int,
    rejects: RejectLog,
    advance: Advance,
) -> Changes:
    """Reads documents, one per line; the last one with an id counts.

    Args:
        sources: the input files in order.
        reader: reads a line.
        max_line_bytes: longest line.
        most: most distinct ids, which bounds the memory.
        rejects: receives invalid lines.
        advance: called with the bytes read.

    Raises:
        InputError: if a file cannot be read, or there are more documents.
    """
    changes = Changes()
    for source, line in _lines(sources, max_line_bytes, advance):
        try:
            document = reader.read(line)
        except RecordError as error:
            rejects.add(source.name, line.number, str(error), line.data, reader.known_id(line))
            continue
        # The last one goes to the end, as if each line were a separate command.
        changes.repeated += changes.upserts.pop(document.id, None) is not None
        changes.upserts[document.id] = document
        _require_few(len(changes), most)
    return changes


def read_deletes(
    sources: Sequence[Source],
    reader: LineReader,
    max_line_bytes: int,
    most: int,
    rejects: RejectLog,
    advance: Advance,
) -> Changes:
    """Reads ids, one per line, plain or in objects with `_id`. Arguments and errors as for `read_upserts`."""
    changes = Changes()
    for source, line in _lines(sources, max_line_bytes, advance):
        try:
            reader.require_whole(line)
            identifier = _identifier(line.data)
        except RecordError as error:
            rejects.add(source.name, line.number, str(error), line.data, reader.known_id(line))
            continue
        changes.repeated += identifier in changes.deletes
        changes.deletes[identifier] = None
        _require_few(len(changes), most)
    return changes


def _lines(sources: Sequence[Source], max_line_bytes: int, advance: Advance) -> Iterator[tuple[Source, Line]]:
    for source in sources:
        for line in source.lines(max_line_bytes):
            yield source, line
            advance(line.read_bytes)


def _identifier(data: bytes) -> str:
    """The id in a line: the whole line including leading and trailing blanks, because ids may have them.

    Raises:
        RecordError: if the line is not an id.
    """
    if data.lstrip().startswith(b"{"):
        return parse_document(data, ()).id
    try:
        # As an object, so that the id is checked as in documents.
        return parse_document(json.dumps({"_id": data.decode()}).encode(), ()).id
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {data[error.start]:#04x} at position {error.start}") from error


def _require_few(count: int, most: int) -> None:
    if count > most:
        raise InputError(
            f"more than {most} different documents for one delta, as --max-delta-documents says; give fewer, or build "
            "the index again"
        )
