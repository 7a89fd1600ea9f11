"""Reads Parquet and Arrow batch by batch; each row becomes a line with a JSON object.

These files contain offsets into themselves, which are wrong in a damaged file. So any error of a reader becomes one
error here, and Arrow batches are validated before use. `child` runs this in a process with bounded memory.
"""

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

from glow.errors import InputError
from glow_index_builder.input.compressed import ARROW, PARQUET, require_package
from glow_index_builder.input.line import Line

__all__ = ["arrow_rows", "parquet_rows"]

BATCH_ROWS = 64
BATCH_BYTES = 1 << 20
"""Approximate size of what is read of a row group at once."""
BUFFER_BYTES = 1 << 16


def parquet_rows(file: BinaryIO, name: str, max_line_bytes: int) -> Iterator[Line]:
    """Yields every row of a Parquet file as JSON in UTF-8.

    Dates and times become ISO 8601, decimals numbers, NaN and infinity null; bytes must be UTF-8. Memory is that of a
    few pages of each column.

    Args:
        file: a seekable file.
        name: for messages.
        max_line_bytes: a longer row is cut and marked.

    Raises:
        InputError: if the file is damaged or a page needs too much memory; the message names the row group.
        DependencyError: if pyarrow is not installed.
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
    """Yields every row of an Arrow IPC file (Feather 2) or stream as JSON in UTF-8, as `parquet_rows` does.

    Args:
        file: at its start; seekable unless it is a stream.
        name: for messages.
        max_line_bytes: a longer row is cut and marked.
        is_stream: whether it is in the streaming format.

    Raises:
        InputError: if it is damaged or a batch needs too much memory; the message names the batch.
        DependencyError: if pyarrow is not installed.
    """
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
    return InputError(f"{what}: {_told(error)}; fetch it again")


def _told(error: Exception) -> str:
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
            data = json.dumps(_plain(row), ensure_ascii=False).encode("utf-8", "replace")
        except MemoryError:
            yield Line(number, b"", 0, is_too_long=True)
        except Exception as error:  # from pyarrow, or a value without a JSON form
            yield Line(number, b"", 0, fault=f"cannot be read: {_told(error)}")
        else:
            yield Line(number, data[: max_line_bytes + 1], len(data), len(data) > max_line_bytes)


def _plain(value: Any) -> Any:
    """Converts a Parquet value to JSON."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
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
