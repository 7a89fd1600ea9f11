"""Checks the documents of a write one by one; only invalid ones are rejected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from glow.collection import bare_line, known_id, read_document
from glow.contract import Reject
from glow.errors import Fault, RecordError
from glow.records import Document
from glow_service.errors import RequestError
from glow_service.writes.parts import documents_of

__all__ = ["AcceptedDocuments", "read_documents", "read_ids", "read_lines"]

SHOWN_ID = 200
"""Most characters of a rejected document's id in a response."""


@dataclass(frozen=True, slots=True)
class AcceptedDocuments:
    """The documents of a request.

    Attributes:
        documents: accepted documents, as JSON values.
        rejects: rejected documents.
    """

    documents: list[dict[str, Any]]
    rejects: list[Reject]


def read_documents(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Reads one document, or `{"documents": [...]}`.

    Args:
        data: the body of the request.
        names: text fields of the index's model.
        most: most documents of a request.
        max_bytes: largest document.

    Raises:
        MalformedJsonError: if the body is not JSON.
        RequestError: if it has another form, too many documents, or no valid one.
    """
    return _checked(documents_of(data), names, most, max_bytes)


def read_lines(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Reads JSON Lines, one document each; empty lines are skipped. Same arguments as `read_documents`.

    Raises:
        RequestError: as for `read_documents`.
    """
    # As in a build, only a line feed ends a line.
    lines = (bare_line(line, is_first=not number) for number, line in enumerate(BytesIO(data)))
    return _checked((line for line in lines if line.strip()), names, most, max_bytes)


def read_ids(body: Mapping[str, Any], most: int) -> list[str]:
    """Reads `{"ids": [...]}`.

    Raises:
        RequestError: if it has another form, too many ids, or none.
    """
    ids = body.get("ids")
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise _fault("/ids", "expected a list of ids, as non-empty strings")
    if not 1 <= len(ids) <= most:
        raise _fault("/ids", f"expected 1 to {most} ids, found {len(ids)}")
    return ids


def _checked(lines: Iterable[bytes], names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Checks documents one by one; reading stops if there are too many."""
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
    """The id of a rejected document, shortened for a response."""
    identifier = known_id(line)
    return None if identifier is None else identifier[:SHOWN_ID].encode(errors="replace").decode()


def _as_json(document: Document) -> dict[str, Any]:
    """A document as the JSON object of a collection's line."""
    fields = {name: list(values) for name, values in document.fields.items() if values}
    return {"_id": document.id, **fields, **document.metadata}


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])
