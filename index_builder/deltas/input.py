"""What `upsert` and `delete` are told: documents and ids, read line by line; a bad line is a reject, never an error."""

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
    """What is asked of an index.

    Attributes:
        upserts: id -> document, to be added or to replace what has its id.
        deletes: ids to go, none of them among the upserts, in the order they came.
        repeated: lines whose id a later line had again: the last one counts.
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
    """Reads documents, one a line; of several with one id the last counts.

    Args:
        sources: the input files in order.
        reader: reads a line.
        max_line_bytes: longest line.
        most: different ids, which bounds the memory.
        rejects: where bad lines go.
        advance: told the bytes read.

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
        # The last one stands last, as if each line were a command of its own.
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
    """Reads ids, one a line: as they are, or in objects with `_id`. Arguments and errors as for `read_upserts`."""
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
    """The id of a line to delete: all of it, blanks at its ends included, for a document may have such an id.

    Raises:
        RecordError: if it is none.
    """
    if data.lstrip().startswith(b"{"):
        return parse_document(data, ()).id
    try:
        # As an object, so that an id is checked as those of documents are.
        return parse_document(json.dumps({"_id": data.decode()}).encode(), ()).id
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {data[error.start]:#04x} at position {error.start}") from error


def _require_few(count: int, most: int) -> None:
    if count > most:
        raise InputError(
            f"more than {most} different documents for one delta, as --max-delta-documents says; give fewer, or build "
            "the index again"
        )
