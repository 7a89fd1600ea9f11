"""JSON that is not one object a line: arrays, objects one after another, and exports of Elasticsearch.

Objects are cut out of the bytes by their braces, without being parsed, so that memory is bounded, numbers stay as they
are, and a bad object costs only itself.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

from glow.errors import InputError
from glow_index_builder.input.lines import Line

JSON_LINES = (".jsonl", ".ndjson")
STEP_BYTES = 1 << 16
_OUTSIDE, _INSIDE = re.compile(rb'["{}\[\]]'), re.compile(rb'["\\]')
_BETWEEN = b", \t\r\n"
_BULK = re.compile(rb'\s*\{\s*"(index|create|update|delete)"\s*:\s*\{')
_DUMP = re.compile(rb'\s*\{\s*"_(index|type|id|source)"')
BULK, DUMP = "Elasticsearch's bulk format", "elasticdump's format"


def is_one_object_a_line(file: BinaryIO) -> bool:
    """Whether the first bytes are not those of an array or of an object over several lines."""
    start = cast(io.BufferedReader, file).peek(STEP_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith((b"[", b"{")):
        return True
    first, end, rest = start.partition(b"\n")
    if start.startswith(b"[") or not end:
        return not start.startswith(b"[")
    return _is_json(first) or rest.lstrip().startswith(b"{")


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def json_items(file: BinaryIO, name: str, max_item_bytes: int) -> Iterator[Line]:
    """Yields the objects of an array, or of a file with one after another."""
    cutter, number, at = _Cutter(name, max_item_bytes), 0, 0
    while data := file.read(STEP_BYTES):
        if not at:
            data = data.removeprefix(b"\xef\xbb\xbf")
        for item, size, is_too_long in cutter.cut(data, at):
            number += 1
            yield Line(number, item, size, is_too_long)
        at += len(data)
    if cutter.is_open:
        raise InputError(f"{name} is cut off in item {number + 1}, which begins at byte {cutter.start}")


class _Cutter:
    """Cuts objects out of JSON, in steps."""

    def __init__(self, name: str, max_item_bytes: int) -> None:
        self._name, self._max_item_bytes = name, max_item_bytes
        self._depth = 0  # of brackets within the item
        self._is_in_string = False
        self._escapes = False  # whether the last byte was a backslash within a string
        self._is_array: bool | None = None  # None before the first byte
        self._is_closed = False
        self._item = bytearray()
        self.start = 0  # position of the item

    @property
    def is_open(self) -> bool:
        """Whether the end is missing."""
        return self._depth > 0 or (self._is_array is True and not self._is_closed)

    def cut(self, data: bytes, at: int) -> Iterator[tuple[bytes, int, bool]]:
        """The items that end in the data, which is at a position: bytes, size, whether it is too long."""
        place = begin = 0
        if self._escapes:
            place, self._escapes = 1, False
        while match := (_INSIDE if self._is_in_string else _OUTSIDE).search(data, place):
            place, mark = match.end(), match[0]
            if self._is_in_string:
                if mark == b"\\":
                    place, self._escapes = place + 1, place == len(data)
                else:
                    self._is_in_string = False
            elif mark == b'"' and self._depth:
                self._is_in_string = True
            elif self._depth:
                self._depth += 1 if mark in b"{[" else -1
                if not self._depth:
                    yield self._end(data[begin:place], at + place)
                    begin = place
            else:
                self._between(data[begin : match.start()], at + begin)
                begin = self._begin(mark, place, at)
        if self._depth:
            self._add(data[begin:])
        else:
            self._between(data[begin:], at + begin)

    def _begin(self, mark: bytes, place: int, at: int) -> int:
        """Begins an item or the array, or ends the array; returns where the next item may begin."""
        position = at + place - 1
        if mark == b"{" and not self._is_closed:
            self._is_array = self._is_array or False
            self._depth, self.start = 1, position
            return place - 1
        if mark == b"[" and self._is_array is None:
            self._is_array = True
        elif mark == b"]" and self._is_array and not self._is_closed:
            self._is_closed = True
        else:
            raise InputError(
                f"{self._name} is not JSON: found {mark.decode()!r} at byte {position}, expected an object"
            )
        return place

    def _between(self, data: bytes, at: int) -> None:
        """Refuses anything but commas and blanks between objects."""
        if rest := data.lstrip(_BETWEEN):
            raise InputError(
                f"{self._name} is not JSON: found {rest[:20].decode(errors='replace')!r} at byte "
                f"{at + len(data) - len(rest)}, expected an object"
            )

    def _add(self, data: bytes) -> None:
        self._item += data[: max(0, self._max_item_bytes + 1 - len(self._item))]

    def _end(self, data: bytes, end: int) -> tuple[bytes, int, bool]:
        self._add(data)
        item, size = bytes(self._item), end - self.start
        self._item.clear()
        return item, size, size > self._max_item_bytes


def known_forms(lines: Iterator[Line]) -> Iterator[Line]:
    """The documents in lines of Elasticsearch's bulk format or of elasticdump; other lines stay as they are."""
    first = next(lines, None)
    while first is not None and not first.data.strip() and not first.is_too_long:
        first = next(lines, None)
    if first is None:
        return
    convert = _bulk if _action(first.data) else _dump if _dumped(first.data) else None
    if convert is None:
        yield first
        yield from lines
    else:
        yield from convert(first, lines)


def _action(data: bytes) -> tuple[str, dict[str, Any]] | None:
    """The action of a bulk line, and its members."""
    if not _BULK.match(data) or not _is_json(data):
        return None
    value = json.loads(data)
    ((name, members),) = value.items() if len(value) == 1 else (("", None),)
    return (name, members) if isinstance(members, dict) and name else None


def _bulk(first: Line, lines: Iterator[Line]) -> Iterator[Line]:
    line: Line | None = first
    while line is not None:
        action = _action(line.data)
        if action is None:
            yield replace(line, fault=line.fault or f"expected an action of {BULK}")
        elif action[0] == "delete":
            yield replace(line, fault=f"the action 'delete' of {BULK} has no document; use glow delete")
        else:
            source = next(lines, None)
            if source is None:
                yield replace(line, fault=f"no document follows the action of {BULK}")
                return
            if action[0] == "update":
                yield replace(source, fault=f"the action 'update' of {BULK} has no whole document")
            else:
                yield _with_id(source, action[1])
        line = next((each for each in lines if each.data.strip() or each.is_too_long), None)


def _with_id(source: Line, members: dict[str, Any]) -> Line:
    """A document with the id of its action."""
    body = source.data.lstrip()
    if "_id" in members and body.startswith(b"{"):
        rest = body[1:].lstrip()
        comma = b"" if rest.startswith(b"}") else b", "
        source = replace(source, data=json.dumps({"_id": members["_id"]}).encode()[:-1] + comma + rest)
    return replace(source, form=BULK)


def _dumped(data: bytes) -> dict[str, Any] | None:
    """The document of a line of elasticdump."""
    if not _DUMP.match(data) or not _is_json(data):
        return None
    value = json.loads(data)
    source = value.get("_source")
    return {"_id": value["_id"], **source} if isinstance(source, dict) and "_id" in value else None


def _dump(first: Line, lines: Iterator[Line]) -> Iterator[Line]:
    line: Line | None = first
    while line is not None:
        document = None if line.is_too_long or line.fault else _dumped(line.data)
        if document is not None:
            line = replace(line, data=json.dumps(document).encode(), form=DUMP)
        yield line
        line = next(lines, None)
