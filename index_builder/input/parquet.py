"""Parquet as lines: each row is the JSON object that a line would be, read row group by row group."""

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from glow.errors import InputError
from glow_index_builder.input.compressed import PARQUET, require_package

__all__ = ["parquet_rows"]

BATCH_ROWS = 64
BUFFER_BYTES = 1 << 16


def parquet_rows(path: Path) -> Iterator[bytes]:
    """Yields every row of a Parquet file as JSON in UTF-8.

    Dates and times become ISO 8601, decimals numbers, NaN and infinity null; bytes must be UTF-8. Memory is that of a
    few pages of each column.

    Raises:
        InputError: if the file is damaged; the message has the row group.
        DependencyError: if pyarrow is not installed.
    """
    require_package(PARQUET, path.name)
    import pyarrow.parquet as parquet

    place = "its footer"
    try:
        # Without buffers for whole column chunks: a row group may be as large as the file.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            for group in range(file.num_row_groups):
                place = f"row group {group}"
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], use_threads=False):
                    for row in batch.to_pylist():
                        yield json.dumps(_plain(row), ensure_ascii=False).encode("utf-8", "replace")
    except (OSError, ValueError, OverflowError) as error:  # pyarrow's errors are of these
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path.name} is damaged or no Parquet file, in {place}: {reason}; fetch it again"
        ) from error


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
