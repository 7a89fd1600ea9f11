"""Reads CSV and TSV: each row becomes a line with a JSON object, whose keys are in the first row."""

import codecs
import csv
import io
import json
from collections.abc import Iterator
from typing import BinaryIO, cast

from glow.errors import InputError
from glow_index_builder.input.line import Line

__all__ = ["DELIMITERS", "table_rows"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiters by the suffix of a file's name, before a compression suffix."""
SKIP_BYTES = 1 << 16


class _TooLongError(Exception):
    """A row is too long."""


class _Lines:
    """The lines of a table for csv's reader; stops at a row that exceeds the limit.

    Args:
        file: at its start.
        delimiter: between values.
        max_row_bytes: longest row.

    Attributes:
        read_bytes: bytes of the file read so far.
        start: the first line of the current row.
    """

    def __init__(self, file: BinaryIO, delimiter: str, max_row_bytes: int) -> None:
        self._file = cast(io.BufferedReader, file)  # all files here support `peek`
        self._after_quote = f"{delimiter}\r\n".encode()
        self._max_row_bytes = max_row_bytes
        self._row_bytes = self._quotes = 0
        self._is_whole = True
        self.read_bytes = 0
        self.start = b""

    def begin(self) -> None:
        """Begins a new row."""
        self._row_bytes = self._quotes = 0
        self.start = b""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        data = self._take(self._file.readline(self._max_row_bytes + 2))  # plus the line ending
        if not data:
            raise StopIteration
        if self.read_bytes == len(data):
            data = data.removeprefix(codecs.BOM_UTF8)
        self.start = self.start or data
        is_cut = not self._is_whole and len(data) >= self._max_row_bytes + 2
        if is_cut or self._row_bytes > self._max_row_bytes + 2:
            raise _TooLongError
        return data.decode(errors="surrogateescape")

    def skip(self, place: str) -> None:
        """Skips the rest of the current row in small steps, up to the first line ending outside of quotes.

        Args:
            place: for the message.

        Raises:
            InputError: if a missing quote may have made this row so long; it would swallow other rows.
        """
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


def table_rows(file: BinaryIO, delimiter: str, name: str, max_line_bytes: int) -> Iterator[Line]:
    """Yields every row of a table except the first as JSON in UTF-8.

    Values are strings; empty ones are left out. A row with a different number of values than the first becomes a list,
    which is rejected because it is not a document. Rows that are too long or not UTF-8 are rejected, too.

    Args:
        file: at its start, decompressed.
        delimiter: between values; quotes are those of RFC 4180.
        name: for messages.
        max_line_bytes: longest row.

    Raises:
        InputError: if the first row does not hold names, or the quotes are invalid.
    """
    lines = _Lines(file, delimiter, max_line_bytes)
    csv.field_size_limit(max_line_bytes + 2)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    names = _names(rows, name)
    number = 1
    while True:
        number += 1
        told = lines.read_bytes
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
            yield Line(number, start, lines.read_bytes - told, is_too_long=True)
            continue
        whole = len(row) == len(names)
        value = {key: cell for key, cell in zip(names, row, strict=True) if cell} if whole else row
        read_bytes = lines.read_bytes - told
        try:
            data = json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield Line(number, lines.start, read_bytes, fault="not UTF-8; convert the file")
        else:
            yield Line(number, data[: max_line_bytes + 1], read_bytes, len(data) > max_line_bytes)


def _names(rows: Iterator[list[str]], name: str) -> list[str]:
    """The keys in the first row."""
    try:
        names = next(rows, [])
        "".join(names).encode()
    except _TooLongError as error:
        raise InputError(f"{name}: the first row, which has the column names, is too long") from error
    except csv.Error as error:
        raise InputError(f"{name} is not a table, in its first row: {error}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is not UTF-8 in its first row; convert it") from error
    if not names or len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"{name}: expected distinct column names in the first row, found {', '.join(names)[:80]!r}"
        )
    return names
