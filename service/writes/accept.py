"""What a request wants written, checked document by document: one that is bad costs itself alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from glow.collection import has_text, parse_document
from glow.errors import Fault, RecordError
from glow_service.errors import RequestError

__all__ = ["Reject", "Taken", "read_documents", "read_ids", "read_lines"]


@dataclass(frozen=True, slots=True)
class Reject:
    """A document that was not taken: its place in the request, from 0, its id where that can be read, and why."""

    place: int
    id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The documents of a request.

    Attributes:
        documents: that are to be written, as JSON values.
        rejects: the others.
    """

    documents: list[dict[str, Any]]
    rejects: list[Reject]


def read_documents(body: Mapping[str, Any], names: Sequence[str], most: int) -> Taken:
    """One document, or `{"documents": [...]}`.

    Args:
        body: the request's.
        names: the fields that the index' model reads.
        most: documents of a request.

    Raises:
        RequestError: if it is neither, or has too many, or none that is good.
    """
    if "documents" not in body:
        return _checked([body], names, most)
    documents = body["documents"]
    if not isinstance(documents, list) or len(body) != 1:
        raise _fault("/documents", "expected a list of documents, and nothing beside it")
    return _checked(documents, names, most)


def read_lines(data: bytes, names: Sequence[str], most: int) -> Taken:
    """JSON lines, a document each; empty lines are passed over.

    Raises:
        RequestError: as `read_documents`.
    """
    values: list[Any] = []
    for line in data.splitlines():
        if line.strip():
            try:
                values.append(orjson.loads(line))
            except orjson.JSONDecodeError as error:
                values.append(RecordError(f"not JSON: {error.msg} at character {error.pos}"))
    return _checked(values, names, most)


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


def _checked(values: Iterable[Any], names: Sequence[str], most: int) -> Taken:
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    count = 0
    for place, value in enumerate(values):
        count += 1
        if count > most:
            raise _fault("/documents", f"expected at most {most} documents; send several requests")
        try:
            good.append(_document(value, names))
        except RecordError as error:
            rejects.append(Reject(place, _id_of(value), str(error)))
    if not good:
        first = f"; the first: {rejects[0].reason}" if rejects else ""
        raise _fault("/documents", f"found {count} documents, none of which can be indexed{first}")
    return Taken(good, rejects)


def _document(value: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(value, RecordError):
        raise value
    if not isinstance(value, dict):
        raise RecordError("expected an object")
    document = parse_document(orjson.dumps(value), names)
    if not has_text(document):
        raise RecordError(f"no text in any field: the model reads {', '.join(names)}")
    return value


def _id_of(value: Any) -> str | None:
    found = value.get("_id") if isinstance(value, dict) else None
    return found[:200] if isinstance(found, str) else None


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])
