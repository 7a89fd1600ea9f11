"""CSV and TSV as lines: each row is the JSON object that a line would be, its keys from the first row."""

import codecs
import csv
import json
from collections.abc import Iterator
from typing import BinaryIO

from glow.errors import InputError

__all__ = ["DELIMITERS", "table_rows"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By the end of a file's name, before that of its compression."""


def table_rows(file: BinaryIO, delimiter: str, name: str, max_line_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yields every row of a table but the first as JSON in UTF-8, with the bytes read for it.

    Values are strings; empty ones are left out. A row of another number of values than the first one has becomes a list,
    which is no document and so a reject.

    Args:
        file: at its start, decompressed.
        delimiter: between values; quotes are those of RFC 4180.
        name: for messages.
        max_line_bytes: longest value.

    Raises:
        InputError: if the file is not UTF-8, has no names in its first row, or a value is too long.
    """
    read_bytes = 0

    def lines() -> Iterator[str]:
        nonlocal read_bytes
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        while data := file.readline(max_line_bytes + 2):
            read_bytes += len(data)
            yield decoder.decode(data)

    csv.field_size_limit(max_line_bytes)
    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        names = next(rows, [])
        if not names or len(set(names)) < len(names) or not all(names):
            raise InputError(
                f"{name}: expected different names of columns in the first row, found {', '.join(names)[:80]!r}"
            )
        told = read_bytes
        for row in rows:
            whole = len(row) == len(names)
            value = {key: cell for key, cell in zip(names, row, strict=True) if cell} if whole else row
            yield json.dumps(value, ensure_ascii=False).encode(), read_bytes - told
            told = read_bytes
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8: {error.reason}, near byte {read_bytes}; convert it"
        ) from error
    except csv.Error as error:
        raise InputError(f"{name} is no table, after row {rows.line_num}: {error}") from error
