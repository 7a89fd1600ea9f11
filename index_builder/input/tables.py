"""Tables as lines of JSON: rows of CSV and TSV as spreadsheets write them, and of Parquet and Arrow, by batches.

Parquet and Arrow files contain offsets into themselves, which are wrong in a damaged file. So any error of a reader
becomes one error here, and Arrow batches are validated before use. `child` runs this in a process with bounded memory.
"""

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO, cast

from glow.errors import InputError
from glow_index_builder.input.column_types import TypeGuesses, typed_value
from glow_index_builder.input.formats import (
    ARROW,
    PARQUET,
    TextFormat,
    converted,
    encoding_hint,
    require_package,
)
from glow_index_builder.input.lines import SHOWN_COLUMNS, Line

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
        named = _NAMED.fullmatch(self._first)
        self.names_delimiter = named is not None
        if named:
            self._first = b""
        self.delimiter = delimiter or (
            named[1].decode(errors="replace") if named else _delimiter(self._first)
        )
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
        data, self._first = (
            self._first or self._file.readline(self._max_row_bytes + 2),
            b"",
        )  # plus the line ending
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

    def _take(self, data: bytes) -> bytes:
        self.read_bytes += len(data)
        self._row_bytes += len(data)
        self._quotes += data.count(b'"')
        self._is_whole = data.endswith(b"\n")
        return data


def _delimiter(first: bytes) -> str:
    outside = _QUOTED.sub(b"", first)
    return max(DELIMITERS, key=lambda each: outside.count(each.encode()))


def table_rows(file: BinaryIO, form: TextFormat, name: str, max_line_bytes: int) -> Iterator[Line]:
    """Yields every row of a table except the first as JSON in UTF-8.

    Values have the types of `form`; empty ones are left out, and so are rows without any. A row that is too long or not
    UTF-8, has another number of cells than the first, or a value that does not fit its type, is rejected.
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
            found = f"{values[key]!r:.80}"
            fault = f"column {key!r} is {kind}, found {found}; --field-type {key}=string takes any value"
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
    """Yields every row of a Parquet file as JSON in UTF-8.

    Dates and times become ISO 8601, decimals numbers, NaN and infinity null; bytes must be UTF-8. Memory is that of a
    few pages of each column.
    """
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
    return InputError(f"{what}: {_one_line(error)}; fetch it again")


def _one_line(error: Exception) -> str:
    """The text of a third-party error on one line, or its type if it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


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
            yield Line(number, b"", 0, fault=f"cannot be read: {_one_line(error)}")
        else:
            yield Line(number, data[: max_line_bytes + 1], len(data), len(data) > max_line_bytes)


def json_value(value: Any) -> Any:
    """Converts a value of Parquet or YAML to JSON."""
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
