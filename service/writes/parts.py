"""The documents of a JSON body as the bytes that were sent, so that each is read, and refused, as a line of a build is."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from glow.errors import Fault
from glow_service.errors import MalformedJsonError, RequestError

__all__ = ["documents_of"]

_BLANKS = re.compile(r"[ \t\n\r]*")
# Nothing here is tried twice, so the time is that of one reading whatever the text is.
_UP_TO_BRACKETS = re.compile(
    r"""(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[{]++|[\]}]++)""", re.DOTALL
)
# Finds where a value ends, and passes over what is one document's fault: numbers of any length, NaN, control characters.
_ENDS = json.JSONDecoder(parse_int=float, parse_constant=lambda name: None, strict=False)
_ESCAPED = "surrogateescape"
"""Bytes that are not UTF-8 cost only the document that they are in."""


def documents_of(body: bytes) -> Iterator[bytes]:
    """Yields the documents of `{"documents": [...]}`, or the one that the body is.

    Args:
        body: of a request.

    Raises:
        MalformedJsonError: if the body is no JSON; what came before was yielded.
        RequestError: if it is JSON of another form.
    """
    text = body.removeprefix(codecs.BOM_UTF8).decode(errors=_ESCAPED)
    start = _after_blanks(text, 0)
    if not text.startswith("{", start):
        _end_of_body(text, _value(text, start)[1])
        raise _fault("", 'expected a document, or {"documents": […]}')
    at = _after_blanks(text, start + 1)
    key, at = _value(text, at) if text.startswith('"', at) else (None, at)
    if key != "documents":
        value, end = _value(text, start)
        _end_of_body(text, end)
        if isinstance(value, dict) and "documents" in value:
            raise _list_alone()
        yield _bytes(text[start:end])
        return
    at = _after(text, ":", at)
    if not text.startswith("[", at):
        _value(text, at)
        raise _list_alone()
    yield from _items(text, _after_blanks(text, at + 1))


def _items(text: str, at: int) -> Iterator[bytes]:
    """The items of the list, and what follows it."""
    while not text.startswith("]", at):
        start = at
        at = _value(text, start)[1]
        yield _bytes(text[start:at])
        at = _after_blanks(text, at)
        if not text.startswith("]", at):
            at = _after(text, ",", at)
            if text.startswith("]", at):
                raise _malformed("Illegal trailing comma before end of array", at)
    at = _after_blanks(text, at + 1)
    if text.startswith(",", at):
        raise _list_alone()
    _end_of_body(text, _after(text, "}", at))


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value at a place and where it ends; None for one that is nested too deep to be read."""
    try:
        return _ENDS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.pos) from error
    except RecursionError:
        return None, _end_of_nested(text, at)


def _end_of_nested(text: str, at: int) -> int:
    """Where a list or an object ends, by its brackets alone."""
    depth, start = 0, at
    while found := _UP_TO_BRACKETS.match(text, at):
        at = found.end()
        count = at - found.start(1)
        if found[1][0] in "[{":
            depth += count
        elif count >= depth:
            return found.start(1) + depth
        else:
            depth -= count
    raise _malformed("a value without an end", start)


def _after(text: str, mark: str, at: int) -> int:
    """Where what follows a mark begins, which must be the next."""
    at = _after_blanks(text, at)
    if not text.startswith(mark, at):
        raise _malformed(f"expected {mark!r}", at)
    return _after_blanks(text, at + 1)


def _end_of_body(text: str, at: int) -> None:
    if (at := _after_blanks(text, at)) < len(text):
        raise _malformed("more than one value", at)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _bytes(text: str) -> bytes:
    return text.encode(errors=_ESCAPED)


def _malformed(reason: str, at: int) -> MalformedJsonError:
    detail = f"{reason} at character {at}"
    return MalformedJsonError(f"the body is not JSON: {detail}", [Fault("", detail)])


def _list_alone() -> RequestError:
    return _fault("/documents", "expected a list of documents, and nothing beside it")


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer or 'the body'}: {detail}", [Fault(pointer, detail)])
