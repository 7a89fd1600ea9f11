"""What the log holds: one operation a line, with a checksum.

    1c291ca3 {"number": 7, "at": 1764028800000000000, "kind": "upsert", "documents": [{"_id": …}, …]}

Each process that accepts writes has files of its own, so nothing is locked and a shared volume need not know how: a file
has one writer, and who reads it passes over a last line that is not whole.
"""

import json
import re
import zlib
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from glow.errors import FormatError, QueryError
from glow.options import StrictModel

__all__ = ["Kind", "Operation", "OperationId", "parse_operation_id", "read_line", "to_line"]

Kind = Literal["upsert", "delete", "delete_by_filter"]
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
    """

    number: int = Field(ge=1)
    at: int = Field(ge=0)
    kind: Kind
    documents: list[dict[str, Any]] = Field(default_factory=list)
    ids: list[str] = Field(default_factory=list)
    filter: dict[str, Any] | None = None

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


def to_line(operation: Operation) -> bytes:
    """The operation's line, its line feed included."""
    body = json.dumps(operation.model_dump(exclude_defaults=True), ensure_ascii=False).encode(
        errors="replace"
    )
    return b"%08x %s\n" % (zlib.crc32(body), body)


def read_line(line: bytes) -> Operation:
    """Reads a line without its line feed.

    Raises:
        FormatError: if its checksum differs, or it holds no operation.
    """
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise FormatError("its checksum differs")
    try:
        return Operation.model_validate_json(body)
    except ValidationError as error:
        raise FormatError("it holds no operation of this GLOW") from error
