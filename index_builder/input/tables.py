"""Tables as lines of JSON: rows of CSV and TSV as spreadsheets write them, and of Parquet and Arrow, by batches.

Parquet and Arrow files contain offsets into themselves, which are wrong in a damaged file. So any error of a reader
becomes one error here, and Arrow batches are validated before use. `parsers` runs this in a process with bounded memory.
"""

import codecs
import csv
import functools
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO, cast

from glow.errors import ConfigError, InputError
from glow_index_builder.input.formats import (
    ARROW,
    PARQUET,
    converted,
    encoding_hint,
    one_line,
    require_package,
)
from glow_index_builder.input.lines import SHOWN_COLUMNS, Line

FIELD_TYPES = ("number", "boolean", "date", "string")
MAX_DIGITS = 15
"""Digits that a floating-point number keeps exactly."""
# Marks between thousands count only before decimals: 1.249 alone is a little more than one.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+(?=\.))(?:\.[0-9]+)?")
_COMMA = re.compile(r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?=,))(?:,[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_GUESSES = ("number", "comma", "boolean", "date")


@functools.cache
def _instant_of() -> Callable[[str], int | None]:
    """Reads dates; imported late, because parsers of files have little memory."""
    from glow.index.columns import instant_of

    return instant_of


def _fits(cell: str, kind: str) -> bool:
    if kind in ("number", "comma"):
        form = _NUMBER if kind == "number" else _COMMA
        return form.fullmatch(cell) is not None and sum(map(str.isdigit, cell)) <= MAX_DIGITS
    return cell.lower() in _BOOLEANS if kind == "boolean" else _instant_of()(cell) is not None


def typed_value(
    cell: str,
    kind: str,
    has_commas: bool,  # whether a decimal comma is allowed
) -> Any:
    """The JSON value of a cell; None if it does not fit the type."""
    text = cell.strip()
    if kind == "string":
        return cell
    if kind == "number" and has_commas and _fits(text, "comma"):
        text = text.replace(".", "").replace(",", ".")
    if not _fits(text, kind):
        return None
    if kind == "number":
        text = text.replace(",", "")
        return float(text) if "." in text else int(text)
    return _BOOLEANS[text.lower()] if kind == "boolean" else text


class TypeGuesses:
    """Guesses the types of columns by name, over all tables of an input."""

    def __init__(
        self,
        texts: Collection[str],  # columns that stay strings: text fields and ids
    ) -> None:
        self._texts = texts
        self._kinds: dict[str, set[str]] = {}  # column -> types that all of its values have
        self._table: dict[str, set[str]] = {}  # the same for the current table

    def add(self, names: Sequence[str], cells: Iterable[str], has_commas: bool) -> None:
        """Looks at a row of the current table."""
        for name, cell in zip(names, cells, strict=True):
            if not cell or name in self._texts:
                continue
            kinds = self._table.setdefault(name, {*_GUESSES} if has_commas else {*_GUESSES} - {"comma"})
            text = cell.strip()
            for kind in [each for each in kinds if not _fits(text, each)]:
                kinds.discard(kind)

    def end(self) -> None:
        """Merges the columns of the current table into those of the others, which may have other decimal marks."""
        for name, kinds in self._table.items():
            all_kinds = {"number" if each == "comma" else each for each in kinds}
            self._kinds[name] = self._kinds.get(name, all_kinds) & all_kinds
        self._table = {}

    def types(self, given: Mapping[str, str]) -> dict[str, str]:
        """The type of each column that is not a string or is given."""
        for name in given:
            if name in self._texts:
                raise ConfigError(f"--field-type {name}: the column is text or an id, which stays a string")
            if self._kinds and name not in self._kinds:
                raise ConfigError(f"--field-type {name}: no table has a value in a column of this name")
        guesses = {
            name: next((each for each in _GUESSES if each in kinds), "")
            for name, kinds in self._kinds.items()
        }
        return {name: kind for name, kind in {**guesses, **given}.items() if kind}


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How files of text are read."""

    delimiter: str = ""  # of tables; empty: by the first row
    encoding: str = ""  # unless the file begins with a mark; empty: UTF-8
    types: Mapping[str, str] | TypeGuesses = field(default_factory=dict)  # of columns, or what guesses them


TABLES = (".csv", ".tsv")
DELIMITERS = ",;\t|"
"""Delimiters of which a first row has one, the first that is most frequent."""
_NAMED = re.compile(rb"sep=([^\r\n])\r?\n")
"""A line of Excel that names the delimiter, before the first row."""
_QUOTED = re.compile(rb'"[^"]*"?')
SKIP_BYTES = 1 << 16


class _TooLongError(Exception):
    """A row is too long."""


class _Lines:
    """The lines of a table for csv's reader; stops at a row that exceeds the limit."""

    def __init__(self, file: BinaryIO, delimiter: str, max_row_bytes: int) -> None:
        start = cast(io.BufferedReader, file).peek(SKIP_BYTES)  # all files here support `peek`
        if b"\n" not in start and b"\r" in start[:-1]:
            file = converted(file, lambda data: data.replace(b"\r", b"\n"))
        self._file = cast(io.BufferedReader, file)
        self._first = self._file.readline(max_row_bytes + 2).removeprefix(codecs.BOM_UTF8)
        outside = _QUOTED.sub(b"", self._first)
        self.delimiter = delimiter or max(DELIMITERS, key=lambda each: outside.count(each.encode()))
        named = _NAMED.fullmatch(self._first)
        self.names_delimiter = named is not None
        if named:
            self._first = b""
            self.delimiter = delimiter or named[1].decode(errors="replace")
        self._after_quote = f"{self.delimiter}\r\n".encode()
        self._max_row_bytes = max_row_bytes
        self._row_bytes = self._quotes = 0
        self._is_whole = True
        self.read_bytes = 0  # bytes of the file read so far
        self.start = b""

    def begin(self) -> None:
        """Begins a new row."""
        self._row_bytes = self._quotes = 0
        self.start = b""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        data = self._first or self._file.readline(self._max_row_bytes + 2)  # plus the line ending
        self._first = b""
        self._take(data)
        if not data:
            raise StopIteration
        self.start = self.start or data
        is_cut = not self._is_whole and len(data) >= self._max_row_bytes + 2
        if is_cut or self._row_bytes > self._max_row_bytes + 2:
            raise _TooLongError
        return data.decode(errors="surrogateescape")

    def skip(self, place: str) -> None:
        """Skips the rest of the current row in small steps, up to the first line ending outside of quotes."""
        while self._quotes % 2 or not self._is_whole:
            chunk = self._file.peek(SKIP_BYTES)
            if not chunk and self._quotes % 2:
                raise InputError(f"{place}: a quote is not closed")
            if not chunk:
                return
            self._take(self._file.read(self._row_in(chunk, place)))

    def _row_in(self, chunk: bytes, place: str) -> int:
        """How many of the next bytes belong to the current row."""
        is_within, size = self._quotes % 2 == 1, 0
        for number, part in enumerate(chunk.split(b'"')):
            if number:
                is_within, size = not is_within, size + 1
                if not is_within and part and part[0] not in self._after_quote:
                    raise InputError(f"{place}: a quote is missing, or one within a value is not doubled")
            end = -1 if is_within else part.find(b"\n")
            if end >= 0:
                return size + end + 1
            size += len(part)
        return size

    def _take(self, data: bytes) -> None:
        self.read_bytes += len(data)
        self._row_bytes += len(data)
        self._quotes += data.count(b'"')
        self._is_whole = data.endswith(b"\n")


def table_rows(file: BinaryIO, form: TextFormat, name: str, max_line_bytes: int) -> Iterator[Line]:
    """Yields every row of a table except the first as JSON in UTF-8, with values of the types of `form`.

    Empty values are left out, and rows without any. Bad rows are rejected.
    """
    lines = _Lines(file, form.delimiter, max_line_bytes)
    csv.field_size_limit(max_line_bytes + 2)
    rows = csv.reader(lines, delimiter=lines.delimiter, strict=True)
    names = _names(rows, lines, name)
    number = 2 if lines.names_delimiter else 1
    before = lines.read_bytes
    while True:
        number += 1
        lines.begin()
        try:
            row = next(rows, None)
            if row is None:
                return
        except _TooLongError:
            row = None
        except csv.Error as error:
            raise InputError(f"{name} is not a table, after row {number - 1}: {error}") from error
        if row is None:
            lines.skip(f"{name} is not a table, in row {number}")
            start = lines.start[: max_line_bytes + 1]
            yield Line(number, start, lines.read_bytes - before, is_too_long=True)
        elif any(row):
            data, fault = _row_data(row, names, form, lines.delimiter == ";")
            read_bytes = lines.read_bytes - before
            if fault:
                yield Line(number, data or lines.start, read_bytes, fault=fault)
            elif data:
                yield Line(number, data[: max_line_bytes + 1], read_bytes, len(data) > max_line_bytes)
        else:
            continue
        before = lines.read_bytes


def _row_data(row: list[str], names: Sequence[str], form: TextFormat, has_commas: bool) -> tuple[bytes, str]:
    """A row as JSON, with its id if it can be read, and why it is rejected; no JSON if the types are only guessed."""
    while len(row) > len(names) and not row[-1]:
        row.pop()
    if len(row) != len(names):
        more = ", …" if len(names) > SHOWN_COLUMNS else ""
        columns = f"{len(names)} columns: {', '.join(names[:SHOWN_COLUMNS])}{more}"
        return b"", f"{len(row)} cell{'s' * (len(row) != 1)}, the header has {columns}"
    if isinstance(form.types, TypeGuesses):
        form.types.add(names, row, has_commas)
        return b"", ""
    values: dict[str, Any] = {key: cell for key, cell in zip(names, row, strict=True) if cell}
    fault = ""
    for key in form.types.keys() & values.keys():
        value, kind = typed_value(values[key], form.types[key], has_commas), form.types[key]
        if value is None:
            cell = f"{values[key]!r:.80}"
            fault = f"column {key!r} is {kind}, found {cell}; --field-type {key}=string takes any value"
        else:
            values[key] = value
    try:
        return json.dumps(values, ensure_ascii=False).encode(), fault
    except UnicodeEncodeError:
        return b"", f"not {form.encoding or 'UTF-8'}"


def _names(rows: Iterator[list[str]], lines: _Lines, name: str) -> list[str]:
    """The keys in the first row, without empty ones at its end."""
    try:
        names = [each.strip() for each in next(rows, [])]
        "".join(names).encode()
    except _TooLongError as error:
        raise InputError(f"{name}: the first row, which has the column names, is too long") from error
    except csv.Error as error:
        raise InputError(f"{name} is not a table, in its first row: {error}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is not UTF-8 in its first row; {encoding_hint(lines.start)}") from error
    while names and not names[-1]:
        names.pop()
    if not names or len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"{name}: expected distinct column names in the first row, found {', '.join(names)[:80]!r}"
        )
    return names


BATCH_ROWS = 64
BATCH_BYTES = 1 << 20
"""Approximate size of what is read of a row group at once."""
BUFFER_BYTES = 1 << 16


def parquet_rows(file: BinaryIO, name: str, max_line_bytes: int) -> Iterator[Line]:
    """Yields every row of a Parquet file as JSON in UTF-8, in the memory of a few pages of each column."""
    require_package(PARQUET, name)
    import pyarrow.parquet as parquet

    place, number = "its footer", 0
    try:
        # Without buffers for whole column chunks: a row group may be as large as the file.
        with parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as opened:
            for group in range(opened.num_row_groups):
                place = f"row group {group}"
                sizes = opened.metadata.row_group(group)
                rows = BATCH_BYTES * max(sizes.num_rows, 1) // max(sizes.total_byte_size, 1)
                size = min(max(rows, 1), BATCH_ROWS)
                for batch in opened.iter_batches(size, row_groups=[group], use_threads=False):
                    yield from _lines_of(batch, number, max_line_bytes)
                    number += batch.num_rows
    except Exception as error:  # of pyarrow, of many kinds
        raise _fault_of(f"{name} is damaged or not a Parquet file, in {place}", error) from error


def arrow_rows(file: BinaryIO, name: str, max_line_bytes: int, *, is_stream: bool) -> Iterator[Line]:
    """Yields every row of an Arrow IPC file (Feather 2) or stream as JSON in UTF-8, as `parquet_rows` does."""
    require_package(ARROW, name)
    import pyarrow as arrow

    number = rows = 0
    try:
        reader = arrow.ipc.open_stream(file) if is_stream else arrow.ipc.open_file(file)
        count = None if is_stream else reader.num_record_batches
        while count is None or number < count:
            try:
                batch = reader.read_next_batch() if is_stream else reader.get_batch(number)
            except StopIteration:
                return
            # Offsets in a damaged file may point anywhere, even outside of the buffer.
            batch.validate(full=True)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from _lines_of(batch.slice(start, BATCH_ROWS), rows + start, max_line_bytes)
            number, rows = number + 1, rows + batch.num_rows
    except Exception as error:  # of pyarrow, of many kinds
        raise _fault_of(f"{name} is damaged or not an Arrow file, in batch {number}", error) from error


def _fault_of(what: str, error: Exception) -> InputError:
    if isinstance(error, MemoryError):
        return InputError(
            f"{what}: it takes more memory than a reader may have; write it in smaller pages, row groups or batches"
        )
    return InputError(f"{what}: {one_line(error)}; fetch it again")


def _lines_of(batch: Any, before: int, max_line_bytes: int) -> Iterator[Line]:
    """The rows of a batch; `before` rows precede it. Only a row that cannot be read becomes a fault."""
    try:
        rows = batch.to_pylist()
    except Exception:  # one of the rows is bad; single reads find it
        rows = None
    for place in range(batch.num_rows):
        number = before + place + 1
        try:
            row = batch.slice(place, 1).to_pylist()[0] if rows is None else rows[place]
            data = json.dumps(json_value(row), ensure_ascii=False).encode("utf-8", "replace")
        except MemoryError:
            yield Line(number, b"", 0, is_too_long=True)
        except Exception as error:  # from pyarrow, or a value without a JSON form
            yield Line(number, b"", 0, fault=f"cannot be read: {one_line(error)}")
        else:
            yield Line(number, data[: max_line_bytes + 1], len(data), len(data) > max_line_bytes)


def json_value(value: Any) -> Any:
    """Converts a value of Parquet or YAML to JSON: dates to ISO 8601, decimals to numbers, NaN and infinity to null."""
    match value:
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.decode()
        case None | bool() | int() | str():
            return value
    return str(value)
