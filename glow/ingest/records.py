"""The lines of the log: one operation each, with a checksum.

    1c291ca3 {"number": 7, "at": 1764028800000000000, "kind": "upsert", "documents": [{"_id": …}, …]}

Each process that accepts writes has its own files, so damage affects one writer. The checksum covers the writer's name
and the operation: a line from another writer's file counts as damaged.
"""

import json
import re
import zlib
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from glow.errors import FormatError, QueryError
from glow.options import StrictModel

__all__ = [
    "Header",
    "Kind",
    "Operation",
    "OperationId",
    "find_headers",
    "parse_operation_id",
    "read_line",
    "to_content",
    "to_line",
]

Kind = Literal["upsert", "delete", "delete_by_filter"]
_HEADER = re.compile(rb'[0-9a-f]{8} \{"number": ([1-9][0-9]{0,17}), "at": ([0-9]{1,20}), ')
"""Start of a line. No text inside a line matches it: JSON escapes quotation marks in strings."""
_ID = re.compile(r"([0-9]{8}T[0-9]{6}-[0-9a-f]{8})-([1-9][0-9]{0,17})")


class OperationId(NamedTuple):
    """Id of an operation: its writer, and its number there, from 1."""

    writer: str
    number: int

    def __str__(self) -> str:
        return f"{self.writer}-{self.number}"


class Operation(StrictModel):
    """One accepted write.

    Attributes:
        number: of its writer, from 1.
        at: when it was accepted, in nanoseconds since 1970; it grows within one writer.
        kind: of the operation.
        documents: for `upsert`: objects as in lines of `corpus.jsonl`.
        ids: for `delete`.
        filter: for `delete_by_filter`: as in a search.
        all: for `delete_by_filter`: the filter may be unrestricted, which deletes every document.
    """

    number: int = Field(ge=1)
    at: int = Field(ge=0)
    kind: Kind
    documents: list[dict[str, Any]] = Field(default_factory=list)
    ids: list[str] = Field(default_factory=list)
    filter: dict[str, Any] | None = None
    all: bool = False

    @property
    def size(self) -> int:
        """Number of documents or ids in it; a filter counts as one."""
        return max(len(self.documents) + len(self.ids), 1)


def parse_operation_id(text: str) -> OperationId:
    """Reads an operation's id.

    Raises:
        QueryError: if the text is not such an id.
    """
    found = _ID.fullmatch(text)
    if found is None:
        raise QueryError(f"{text!r:.80} is not an operation id; use the id in a write's response")
    return OperationId(found[1], int(found[2]))


class Header(NamedTuple):
    """Start of a line: its position, its number, and when it was accepted."""

    start: int
    number: int
    at: int


def to_content(kind: Kind, content: dict[str, Any]) -> bytes:
    """JSON object of a line without number and time, which are added last.

    Args:
        kind: of the operation.
        content: `documents`, `ids`, or `filter` and `all` of `Operation`.
    """
    operation = Operation(number=1, at=0, kind=kind, **content)
    values = operation.model_dump(exclude_defaults=True, exclude={"number", "at"})
    return json.dumps(values, ensure_ascii=False).encode(errors="replace")


def to_line(writer: str, number: int, at: int, content: bytes) -> bytes:
    """An operation's line, its line feed included.

    Args:
        writer: name of the file's writer.
        number, at: of `Operation`.
        content: as `to_content` makes it.
    """
    body = b'{"number": %d, "at": %d, %s' % (number, at, content[1:])
    return b"%08x %s\n" % (_checksum(writer, body), body)


def find_headers(line: bytes) -> list[Header]:
    """Where operations begin in a line: normally one; more if a line feed was lost; none if its beginning is damaged."""
    return [Header(found.start(), int(found[1]), int(found[2])) for found in _HEADER.finditer(line)]


def read_line(writer: str, line: bytes) -> Operation:
    """Reads an operation; anything after its JSON object, such as a line feed, is ignored.

    Args:
        writer: name of the file's writer.
        line: from the checksum on.

    Raises:
        FormatError: if its checksum differs, or it is not an operation.
    """
    checksum, _, body = line.partition(b" ")
    body = body[: body.rfind(b"}") + 1]
    # Lines of earlier versions of GLOW do not cover the writer's name.
    if checksum not in (b"%08x" % _checksum(writer, body), b"%08x" % zlib.crc32(body)):
        raise FormatError("its checksum differs")
    try:
        return Operation.model_validate_json(body)
    except ValidationError as error:
        raise FormatError("it is not an operation of this version of GLOW") from error


def _checksum(writer: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(writer.encode()))
