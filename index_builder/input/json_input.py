"""JSON that is not one object a line: arrays, objects one after another, and exports of Elasticsearch.

ijson parses one object after another, so that memory is bounded by the longest.
"""

import codecs
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

import ijson

from glow.errors import InputError
from glow_index_builder.input.formats import one_line
from glow_index_builder.input.lines import Line, key_of_list, list_hint

JSON_LINES = (".jsonl", ".ndjson")
STEP_BYTES = 1 << 16
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
    goes_on = first.rstrip().endswith((b"[", b"{", b","))
    return _is_json(first) or (rest.lstrip().startswith(b"{") and not goes_on)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def json_items(file: BinaryIO, name: str, max_item_bytes: int) -> Iterator[Line]:
    """Yields the items of an array, or of a file with one after another; a fault of the JSON ends the file."""
    source = _CountedFile(file, max_item_bytes)
    prefix = "item" if source.start.lstrip().startswith(b"[") else ""
    items = ijson.items(source, prefix, multiple_values=True, use_float=True)
    number = 0
    while True:
        try:
            value = next(items)
            data = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        except StopIteration:
            return
        except ijson.IncompleteJSONError as error:
            raise InputError(
                f"{name} is damaged or cut off after item {number}: {one_line(error)}"
            ) from error
        except (ijson.JSONError, ValueError, RecursionError) as error:
            key = "" if number else key_of_list(source.start)
            hint = f". {list_hint(key)}" if key else ""
            raise InputError(
                f"{name} is not usable JSON after item {number}: {one_line(error)}{hint}"
            ) from error
        number += 1
        read_bytes, source.item_bytes = source.item_bytes, 0
        yield Line(number, data[: max_item_bytes + 1], read_bytes, len(data) > max_item_bytes)


class _CountedFile:
    """A file for ijson, without its byte order mark; refuses an item whose bytes have no end."""

    def __init__(self, file: BinaryIO, max_item_bytes: int) -> None:
        self._file, self._most = file, STEP_BYTES + 8 * max_item_bytes  # white space counts, too
        self.start = file.read(STEP_BYTES).removeprefix(codecs.BOM_UTF8)
        self._waiting: bytes | None = self.start
        self.item_bytes = 0  # read since the last item

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes, whatever the size asked for, or none if `size` is 0."""
        if not size:
            return b""
        data = self._file.read(STEP_BYTES) if self._waiting is None else self._waiting
        self._waiting = None
        self.item_bytes += len(data)
        if self.item_bytes > self._most:
            raise ValueError(f"it has more than {self._most:,} bytes")
        return data


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
