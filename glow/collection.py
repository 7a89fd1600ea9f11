"""Documents, queries and relevance judgments in BEIR's layout with named fields.

`corpus.jsonl` holds one JSON object a line (`_id` or `id`, text fields, any other key is metadata), `queries.jsonl` holds
`_id` and `text`, `qrels/SPLIT.tsv` a header and `query-id`, `corpus-id`, `score`. One parser serves builds and
HTTP writes, which keep bad lines as rejects, and evaluation and training, which stop at the first one.
"""

import codecs
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from glow.errors import InputError, RecordError
from glow.records import Document, Qrel, Query

R = TypeVar("R")
MAX_DOCUMENT_BYTES = 1_000_000
"""Longest JSON of a document, by default."""
MAX_ID_BYTES = 512
SHOWN_KEYS = 6
# Other JSON libraries read and write metadata: they limit whole numbers to 64 bits, and depth.
MAX_DEPTH = 64
MAX_NUMBER = 2**63 - 1
_TOO_DEEP = f"JSON nested too deep, expected at most {MAX_DEPTH} levels"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {
    dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null",
}  # fmt: skip
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
ID_KEYS = ("_id", "id")
"""Keys of a record's id, the first one that is there."""
NO_ID = "no id"
"""Start of the error for a record without id."""
GENERATED = "a hash of the content"
HASH_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """How the keys of a record are read."""

    rename: Mapping[str, str] = field(default_factory=dict)  # source key -> target key, applied all at once
    id_field: str | None = None  # source key of the id, which also stays a field or metadata
    generate_ids: bool = False  # whether a record without id takes a hash of its content

    def id_of(self, record: Mapping[str, Any], renamed: Mapping[str, Any]) -> tuple[str, Any]:
        """The key of a record's id, and its value; the key is empty if there is none."""
        if self.id_field is not None and self.id_field in record:
            return self.id_field, record[self.id_field]
        keys = ID_KEYS if self.id_field is None else ID_KEYS[:1]
        return next(((key, renamed[key]) for key in keys if key in renamed), ("", None))


PLAIN_KEYS = RecordKeys()


@dataclass(frozen=True, slots=True)
class UsedKeys:
    """Which keys of records were read."""

    ids: Counter[str] = field(default_factory=Counter)  # key -> number of ids taken from it
    renamed: set[str] = field(default_factory=set)  # source keys that some record has


def parse_object(line: bytes) -> dict[str, Any]:
    """Reads one line as a JSON object; NaN, Infinity, numbers of thousands of digits and deep nesting are refused."""
    try:
        value = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {line[error.start]:#04x} at position {error.start}") from error
    except RecursionError as error:
        raise RecordError(_TOO_DEEP) from error
    except json.JSONDecodeError as error:
        raise RecordError(f"not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:  # Python refuses whole numbers of more than 4,300 digits
        raise RecordError(f"not usable JSON: {error}") from error
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, found {_json_type(value)}")
    return value


def parse_document(
    line: bytes, field_names: Sequence[str], keys: RecordKeys = PLAIN_KEYS, used: UsedKeys | None = None
) -> Document:
    """Reads one corpus line.

    A field takes a string or a list of strings; null and a missing key are an empty field. All other keys but that of
    the id are metadata. Lone surrogates in text become U+FFFD, because they have no UTF-8 form; in an id they are refused.
    """
    record = parse_object(line)
    value = _renamed(record, keys.rename)
    key, own = keys.id_of(record, value)
    if not key and keys.generate_ids:
        key, identifier = GENERATED, _content_hash(record)
    else:
        identifier = _identifier(key, own, keys)
    if used is not None:
        used.ids[key] += 1
        used.renamed.update(keys.rename.keys() & record.keys())
    value.pop("_id", None)
    if key == "id" != keys.id_field:
        del value[key]
    fields = {name: _values(name, value.pop(name, None)) for name in field_names}
    return Document(identifier, fields, _clean(value, MAX_DEPTH))


def read_document(
    line: bytes,
    field_names: Sequence[str],
    keys: RecordKeys = PLAIN_KEYS,
    max_bytes: int = MAX_DOCUMENT_BYTES,
    used: UsedKeys | None = None,
) -> Document:
    """Reads a document for indexing, as `parse_document`; builds and writes accept exactly the same lines.

    A line that is too long or has no text is refused.
    """
    if len(line) > max_bytes:
        raise too_long(max_bytes)
    document = parse_document(line, field_names, keys, used)
    if not has_text(document):
        others = ", ".join(list(document.metadata)[:SHOWN_KEYS])
        names = ", ".join(field_names)
        raise RecordError(
            f"no text in any field: the model reads {names}; other keys here: {others or 'none'}"
        )
    return document


def too_long(max_bytes: int) -> RecordError:
    """The error for a line longer than `max_bytes`."""
    return RecordError(f"longer than {max_bytes} bytes, the limit (--max-line-bytes of a build)")


def known_id(line: bytes, keys: RecordKeys = PLAIN_KEYS) -> str | None:
    """The id of an invalid line, if it can be read nevertheless."""
    try:
        record = parse_object(line)
    except RecordError:
        return None
    _, identifier = keys.id_of(record, {keys.rename.get(key, key): item for key, item in record.items()})
    return identifier if isinstance(identifier, str) else None


def bare_line(line: bytes, *, is_first: bool) -> bytes:
    """A line without its ending; the first one also without a byte order mark. Only line feeds end lines."""
    return (line.removeprefix(codecs.BOM_UTF8) if is_first else line).rstrip(b"\r\n")


def has_text(document: Document) -> bool:
    """Whether any field has more than white space; no query can find a document without text."""
    return any(text.strip() for values in document.fields.values() for text in values)


def read_documents(path: Path, field_names: Sequence[str]) -> Iterator[Document]:
    """Yields the documents of a `corpus.jsonl` and stops at the first bad line.

    Documents without text are skipped: old datasets hold some (cranfield's 471 and 995).
    """
    return filter(has_text, _records(path, lambda _, line: parse_document(line, field_names)))


def read_queries(path: Path) -> Iterator[Query]:
    """Yields the queries of a `queries.jsonl`."""

    def parse(_: int, line: bytes) -> Query:
        value = parse_object(line)
        text = value.get("text")
        if not isinstance(text, str):
            raise RecordError(f"'text' must be a string, found {_json_type(text)}")
        return Query(_identifier(*PLAIN_KEYS.id_of(value, value)), _LONE_SURROGATE.sub("\ufffd", text))

    return _records(path, parse)


def read_qrels(path: Path) -> Iterator[Qrel]:
    """Yields the relevance judgments of a `qrels/SPLIT.tsv`; its first line is a header."""

    def parse(number: int, line: bytes) -> Qrel | None:
        row = line.decode().rstrip("\r\n").split("\t")
        is_row = len(row) == 3 and _WHOLE_NUMBER.fullmatch(row[2]) is not None
        if number > 1 and not is_row:
            raise RecordError(
                f"expected query-id, corpus-id and a whole-number score, found {f'{row!r:.200}'}"
            )
        if number == 1 and is_row:
            raise RecordError(
                f"expected a header (query-id, corpus-id, score), found a relevance judgment: {row}"
            )
        return Qrel(row[0], row[1], int(row[2])) if is_row else None

    return filter(None, _records(path, parse))


def _records(path: Path, parse: Callable[[int, bytes], R]) -> Iterator[R]:
    """What each line that is not blank holds; an error names the file and the line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                content = bare_line(line, is_first=number == 1)
                if content.strip():
                    try:
                        yield parse(number, content)
                    except UnicodeDecodeError as error:
                        raise RecordError(f"{path.name} line {number}: not UTF-8") from error
                    except RecordError as error:
                        raise RecordError(f"{path.name} line {number}: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _renamed(value: dict[str, Any], rename: Mapping[str, str]) -> dict[str, Any]:
    if not rename:
        return value
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        target = rename.get(key, key)
        if target in renamed:
            raise RecordError(f"two keys of the line have the name {target!r} after renaming")
        renamed[target] = item
    return renamed


def _content_hash(record: Mapping[str, Any]) -> str:
    try:
        content = json.dumps(record, sort_keys=True, separators=(",", ":"))
    except RecursionError as error:
        raise RecordError(_TOO_DEEP) from error
    return hashlib.sha256(content.encode()).hexdigest()[:HASH_CHARACTERS]


def _identifier(key: str, value: Any, keys: RecordKeys = PLAIN_KEYS) -> str:
    if not key:
        first, second = ID_KEYS if keys.id_field is None else (keys.id_field, "_id")
        raise RecordError(f"{NO_ID}, expected the key {first!r} or {second!r}")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise RecordError(f"{key!r} must be a string, found {_json_type(value)}")
    if not value.strip() or "\0" in value or _LONE_SURROGATE.search(value):
        raise RecordError(f"{key!r} must be text without NUL and lone surrogates, found {value!r:.80}")
    if len(value.encode()) > MAX_ID_BYTES:
        raise RecordError(f"{key!r} has {len(value.encode())} bytes, expected at most {MAX_ID_BYTES}")
    return value


def _values(name: str, value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise RecordError(f"field {name!r} must be a string or a list of strings, found {_json_type(value)}")
    return tuple(_LONE_SURROGATE.sub("\ufffd", text) for text in values)


def _clean(value: Any, depth: int) -> Any:
    """Replaces lone surrogates anywhere in a JSON value and rejects values that other JSON libraries cannot read."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if (isinstance(value, int) and abs(value) > MAX_NUMBER) or value in (inf, -inf):
        raise RecordError(f"the number {value!r:.30} is out of range, expected at most 64 bits")
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        raise RecordError(_TOO_DEEP)
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    return {_clean(key, 0): _clean(item, depth - 1) for key, item in value.items()}


def _json_type(value: Any) -> str:
    if isinstance(value, list):
        kinds = sorted({_JSON_TYPES[type(item)] for item in value})
        return f"a list of {', '.join(kinds)}" if kinds else "an empty list"
    return _JSON_TYPES[type(value)]


def _refuse_constant(name: str) -> NoReturn:
    raise RecordError(f"not JSON: {name} is not allowed")


def text_lines(files: Sequence[Path]) -> list[str]:
    """The lines of UTF-8 files, without outer spaces and blank lines."""
    try:
        lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the texts, expected UTF-8, one a line: {error}") from error
    return [text for text in map(str.strip, lines) if text]
