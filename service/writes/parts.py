"""Splits a JSON body into the bytes of its documents, so that each is read and rejected like a line of a build."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from glow.errors import Fault
from glow_service.errors import MalformedJsonError, RequestError

__all__ = ["documents_of"]

_BLANKS = re.compile(r"[ \t\n\r]*")
# Possessive quantifiers prevent backtracking, so the time is linear for any text.
_UP_TO_BRACKETS = re.compile(
    r"""(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[{]++|[\]}]++)""", re.DOTALL
)
# Finds the end of a value; accepts errors that concern one document only: long numbers, NaN, control characters.
_ENDS = json.JSONDecoder(parse_int=float, parse_constant=lambda name: None, strict=False)
_ESCAPED = "surrogateescape"
"""Keeps invalid UTF-8, so that only its document is rejected."""


def documents_of(body: bytes) -> Iterator[bytes]:
    """Yields the documents of `{"documents": [...]}`, or the body itself as one document.

    Args:
        body: body of a request.

    Raises:
        MalformedJsonError: if the body is not JSON; earlier documents were already yielded.
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
    """Yields the items of the list, and checks the rest of the body."""
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
    """The value at a position, and its end; the value is None if it is nested too deeply."""
    try:
        return _ENDS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.pos) from error
    except RecursionError:
        return None, _end_of_nested(text, at)


def _end_of_nested(text: str, at: int) -> int:
    """The end of a list or an object, found by its brackets."""
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
    """The position after an expected character and white space."""
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
    return _fault("/documents", "expected a list of documents, and no other member")


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer or 'the body'}: {detail}", [Fault(pointer, detail)])
