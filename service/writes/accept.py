"""What a request wants written, checked document by document: one that is bad costs itself alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from glow.collection import bare_line, known_id, read_document
from glow.errors import Fault, RecordError
from glow.records import Document
from glow_service.errors import RequestError
from glow_service.writes.parts import documents_of

__all__ = ["AcceptedDocuments", "Reject", "read_documents", "read_ids", "read_lines"]

SHOWN_ID = 200
"""Characters of a rejected document's id that are shown."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A document that was not taken: its place in the request, from 0, its id where that can be read, and why."""

    place: int
    id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class AcceptedDocuments:
    """The documents of a request.

    Attributes:
        documents: that are to be written, as JSON values.
        rejects: the others.
    """

    documents: list[dict[str, Any]]
    rejects: list[Reject]


def read_documents(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """One document, or `{"documents": [...]}`.

    Args:
        data: the body of the request.
        names: the fields that the model of the index reads.
        most: documents of a request.
        max_bytes: of one document.

    Raises:
        MalformedJsonError: if the body is no JSON.
        RequestError: if it is neither, or has too many, or none that is good.
    """
    return _checked(documents_of(data), names, most, max_bytes)


def read_lines(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """JSON lines, a document each; empty lines are passed over. Arguments as for `read_documents`.

    Raises:
        RequestError: as `read_documents`.
    """
    # As a build reads a file: a line ends at a line feed, and nowhere else.
    lines = (bare_line(line, is_first=not number) for number, line in enumerate(BytesIO(data)))
    return _checked((line for line in lines if line.strip()), names, most, max_bytes)


def read_ids(body: Mapping[str, Any], most: int) -> list[str]:
    """`{"ids": [...]}`.

    Raises:
        RequestError: if it is something else, has too many, or none.
    """
    ids = body.get("ids")
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise _fault("/ids", "expected a list of ids, strings that are not empty")
    if not 1 <= len(ids) <= most:
        raise _fault("/ids", f"expected 1 to {most} ids, found {len(ids)}")
    return ids


def _checked(lines: Iterable[bytes], names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """The documents of lines, which are read one by one: what is one too many ends the reading."""
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    count = 0
    for place, line in enumerate(lines):
        count += 1
        if count > most:
            raise _fault("/documents", f"expected at most {most} documents; send several requests")
        try:
            good.append(_as_json(read_document(line, names, None, max_bytes)))
        except RecordError as error:
            rejects.append(Reject(place, _shown_id(line[: max_bytes + 1]), str(error)))
    if not good:
        first = f"; the first: {rejects[0].reason}" if rejects else ""
        raise _fault("/documents", f"found {count} documents, none of which can be indexed{first}")
    return AcceptedDocuments(good, rejects)


def _shown_id(line: bytes) -> str | None:
    """The id of what was refused, as far as a response can hold it."""
    identifier = known_id(line)
    return None if identifier is None else identifier[:SHOWN_ID].encode(errors="replace").decode()


def _as_json(document: Document) -> dict[str, Any]:
    """A document as a line of a collection has it."""
    fields = {name: list(values) for name, values in document.fields.items() if values}
    return {"_id": document.id, **fields, **document.metadata}


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])
