"""What the log holds: one operation a line, with a checksum.

    1c291ca3 {"number": 7, "at": 1764028800000000000, "kind": "upsert", "documents": [{"_id": …}, …]}

Each process that accepts writes has files of its own, so a damaged file is one writer's. The checksum covers the writer's
name and the operation: a line that came from another file counts as damaged.
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
"""How a line begins. No text inside a line looks like this: quotation marks inside JSON's strings are escaped."""
_ID = re.compile(r"([0-9]{8}T[0-9]{6}-[0-9a-f]{8})-([1-9][0-9]{0,17})")


class OperationId(NamedTuple):
    """Which operation: of which writer, and its number there, from 1."""

    writer: str
    number: int

    def __str__(self) -> str:
        return f"{self.writer}-{self.number}"


class Operation(StrictModel):
    """One accepted write.

    Attributes:
        number: of its writer, from 1.
        at: when it was accepted, in nanoseconds since 1970; later ones of one writer have a later one.
        kind: what is to be done.
        documents: of `upsert`: as lines of a collection.
        ids: of `delete`.
        filter: of `delete_by_filter`: as a search has it.
        all: of `delete_by_filter`: the filter may restrict nothing, and every document be deleted.
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
        """Documents or ids that it names; a filter counts as one."""
        return max(len(self.documents) + len(self.ids), 1)


def parse_operation_id(text: str) -> OperationId:
    """Reads an operation's id.

    Raises:
        QueryError: if it is none.
    """
    found = _ID.fullmatch(text)
    if found is None:
        raise QueryError(f"{text!r:.80} is no id of an operation; a write's answer has it")
    return OperationId(found[1], int(found[2]))


class Header(NamedTuple):
    """How a line begins: where, with which number, and when it was accepted."""

    start: int
    number: int
    at: int


def to_content(kind: Kind, content: dict[str, Any]) -> bytes:
    """What a line says apart from number and time, which are known last: JSON of an object.

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
        writer: whose file it is for.
        number, at: of `Operation`.
        content: as `to_content` makes it.
    """
    body = b'{"number": %d, "at": %d, %s' % (number, at, content[1:])
    return b"%08x %s\n" % (_checksum(writer, body), body)


def find_headers(line: bytes) -> list[Header]:
    """Where operations begin in a line: one, unless a line feed was lost, or none if its beginning is damaged."""
    return [Header(found.start(), int(found[1]), int(found[2])) for found in _HEADER.finditer(line)]


def read_line(writer: str, line: bytes) -> Operation:
    """Reads an operation; what follows its JSON object, such as a line feed, is passed over.

    Args:
        writer: whose file the line is in.
        line: from the checksum on.

    Raises:
        FormatError: if its checksum differs, or it holds no operation.
    """
    checksum, _, body = line.partition(b" ")
    body = body[: body.rfind(b"}") + 1]
    # Lines that an earlier GLOW wrote do not cover the writer's name.
    if checksum not in (b"%08x" % _checksum(writer, body), b"%08x" % zlib.crc32(body)):
        raise FormatError("its checksum differs")
    try:
        return Operation.model_validate_json(body)
    except ValidationError as error:
        raise FormatError("it holds no operation of this GLOW") from error


def _checksum(writer: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(writer.encode()))
