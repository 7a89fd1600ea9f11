"""Parquet and Arrow as lines: each row is the JSON object that a line would be, read batch by batch."""

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

from glow.errors import InputError
from glow_index_builder.input.compressed import ARROW, PARQUET, require_package

__all__ = ["arrow_rows", "parquet_rows"]

BATCH_ROWS = 64
BUFFER_BYTES = 1 << 16


def parquet_rows(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yields every row of a Parquet file as JSON in UTF-8.

    Dates and times become ISO 8601, decimals numbers, NaN and infinity null; bytes must be UTF-8. Memory is that of a
    few pages of each column.

    Args:
        file: that can be moved in.
        name: for messages.

    Raises:
        InputError: if the file is damaged; the message has the row group.
        DependencyError: if pyarrow is not installed.
    """
    require_package(PARQUET, name)
    import pyarrow.parquet as parquet

    place = "its footer"
    try:
        # Without buffers for whole column chunks: a row group may be as large as the file.
        with parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as opened:
            for group in range(opened.num_row_groups):
                place = f"row group {group}"
                for batch in opened.iter_batches(BATCH_ROWS, row_groups=[group], use_threads=False):
                    yield from _lines_of(batch)
    except (OSError, ValueError, OverflowError) as error:  # pyarrow's errors are of these
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} is damaged or no Parquet file, in {place}: {reason}; fetch it again"
        ) from error


def arrow_rows(file: BinaryIO, name: str, *, is_stream: bool) -> Iterator[bytes]:
    """Yields every row of an Arrow IPC file (Feather 2) or stream as JSON in UTF-8, as `parquet_rows` does.

    Args:
        file: at its start; one that is no stream can be moved in.
        name: for messages.
        is_stream: whether it is in the streaming format.

    Raises:
        InputError: if it is damaged; the message has the batch.
        DependencyError: if pyarrow is not installed.
    """
    require_package(ARROW, name)
    import pyarrow as arrow

    number = 0
    try:
        reader = arrow.ipc.open_stream(file) if is_stream else arrow.ipc.open_file(file)
        count = None if is_stream else reader.num_record_batches
        while count is None or number < count:
            try:
                batch = reader.read_next_batch() if is_stream else reader.get_batch(number)
            except StopIteration:
                return
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from _lines_of(batch.slice(start, BATCH_ROWS))
            number += 1
    except (OSError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} is damaged or no Arrow file, in batch {number}: {reason}; fetch it again"
        ) from error


def _lines_of(batch: Any) -> Iterator[bytes]:
    for row in batch.to_pylist():
        yield json.dumps(_plain(row), ensure_ascii=False).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    """A value of Parquet as one of JSON."""
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
