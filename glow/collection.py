"""Documents, queries and judgements in BEIR's layout with named fields.

`corpus.jsonl` holds one JSON object a line (`_id`, text fields, any other key is metadata), `queries.jsonl` holds
`_id` and `text`, `qrels/SPLIT.tsv` a header and `query-id`, `corpus-id`, `score`. One parser serves the
builder (which keeps bad lines as rejects), evaluation and training (which stop at the first).
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from glow.errors import InputError, RecordError
from glow.records import Document, Qrel, Query

__all__ = ["has_text", "parse_document", "parse_object", "read_documents", "read_qrels", "read_queries"]

MAX_ID_BYTES = 512
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_object(line: bytes) -> dict[str, Any]:
    """Reads one line as a JSON object.

    Raises:
        RecordError: not UTF-8, not JSON, not an object, NaN or Infinity, or nested too deep.
    """
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {line[error.start]:#04x} at position {error.start}") from error
    except RecursionError as error:
        raise RecordError("JSON nested too deep") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"not JSON: {error.msg} at character {error.pos}") from error
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, found {_json_type(value)}")
    return value


def parse_document(
    line: bytes, field_names: Sequence[str], rename: Mapping[str, str] | None = None
) -> Document:
    """Reads one corpus line.

    A field takes a string or a list of strings; null and a missing key are an empty field. Lone surrogates
    in text become U+FFFD, because they have no UTF-8 form; in an id they are refused.

    Args:
        line: one line of JSON in UTF-8.
        field_names: keys that are text fields; all other keys but `_id` are metadata.
        rename: found key -> wanted key, applied first (`{"headline": "title"}`).

    Raises:
        RecordError: the line is no document; the message says what was found and expected.
    """
    value = parse_object(line)
    for found, wanted in (rename or {}).items():
        if found in value:
            if wanted in value:
                raise RecordError(f"both {found!r} and {wanted!r} are present, and one is mapped to the other")
            value[wanted] = value.pop(found)
    identifier = _identifier(value.pop("_id", None))
    fields = {name: _values(name, value.pop(name, None)) for name in field_names}
    return Document(identifier, fields, _clean(value))


def has_text(document: Document) -> bool:
    """Whether any field holds more than white space; a document without cannot be found by any query."""
    return any(text.strip() for values in document.fields.values() for text in values)


def read_documents(path: Path, field_names: Sequence[str]) -> Iterator[Document]:
    """Yields the documents of a `corpus.jsonl` and stops at the first bad line.

    Documents without text are passed over: old collections hold some (cranfield's 471 and 995).

    Raises:
        InputError: the file cannot be read.
        RecordError: a line is no document; the message names file and line.
    """
    for number, line in _lines(path):
        try:
            document = parse_document(line, field_names)
        except RecordError as error:
            raise RecordError(f"{path.name} line {number}: {error}") from error
        if has_text(document):
            yield document


def read_queries(path: Path) -> Iterator[Query]:
    """Yields the queries of a `queries.jsonl`.

    Raises:
        InputError: the file cannot be read.
        RecordError: a line is no query; the message names file and line.
    """
    for number, line in _lines(path):
        try:
            value = parse_object(line)
            text = value.get("text")
            if not isinstance(text, str):
                raise RecordError(f"'text' must be a string, found {_json_type(text)}")
            yield Query(_identifier(value.get("_id")), _LONE_SURROGATE.sub("\ufffd", text))
        except RecordError as error:
            raise RecordError(f"{path.name} line {number}: {error}") from error


def read_qrels(path: Path) -> Iterator[Qrel]:
    """Yields the judgements of a `qrels/SPLIT.tsv`; its first line is a header.

    Raises:
        InputError: the file cannot be read.
        RecordError: a row has not three columns or a grade that is no whole number.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=1):
                if number == 1 or not row:
                    continue
                if len(row) != 3 or not re.fullmatch(r"-?\d+", row[2]):
                    raise RecordError(
                        f"{path.name} line {number}: expected query-id, corpus-id and a whole-number score, found {row}"
                    )
                yield Qrel(row[0], row[1], int(row[2]))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _identifier(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise RecordError(f"'_id' must be a string, found {_json_type(value)}")
    if not value or "\0" in value or _LONE_SURROGATE.search(value):
        raise RecordError(f"'_id' must be text without NUL and lone surrogates, found {value!r}")
    if len(value.encode()) > MAX_ID_BYTES:
        raise RecordError(f"'_id' has {len(value.encode())} bytes, expected at most {MAX_ID_BYTES}")
    return value


def _values(name: str, value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise RecordError(f"field {name!r} must be a string or a list of strings, found {_json_type(value)}")
    return tuple(_LONE_SURROGATE.sub("\ufffd", text) for text in values)


def _clean(value: Any) -> Any:
    """Replaces lone surrogates anywhere in a JSON value."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _json_type(value: Any) -> str:
    if isinstance(value, list):
        kinds = sorted({_json_type(item) for item in value})
        return f"a list of {', '.join(kinds)}" if kinds else "an empty list"
    names = {dict: "an object", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _refuse_constant(name: str) -> NoReturn:
    raise RecordError(f"not JSON: {name} has no place in it")
