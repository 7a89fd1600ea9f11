"""Rows of Parquet are the lines that they would be as JSON, and damage is told with its place."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from glow.errors import InputError
from glow_index_builder.input.source import Line, Source


def lines(path: Path, max_line_bytes: int = 100) -> list[Line]:
    return list(Source(path.name, path).lines(max_line_bytes))


def test_rows_of_parquet_are_lines(tmp_path: Path) -> None:
    rows = [
        {
            "_id": f"d{number}",
            "title": "bees",
            "anchor": ["a", "b"],
            "day": date(2024, 1, 2),
            "price": Decimal("1.50"),
            "size": float("nan"),
            "raw": "ü".encode(),
            "place": {"city": "Ulm"},
        }
        for number in range(300)
    ]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)
    found = lines(path, 200)
    assert [line.number for line in found] == list(range(1, 301))
    assert json.loads(found[299].data) == {
        "_id": "d299",
        "title": "bees",
        "anchor": ["a", "b"],
        "day": "2024-01-02",
        "price": 1.5,
        "size": None,
        "raw": "ü",
        "place": {"city": "Ulm"},
    }
    assert all(line.is_too_long and len(line.data) == 21 for line in lines(path, 20))


def test_damaged_parquet_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"_id": [str(number) for number in range(1000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=500, compression="zstd", use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"rows\.parquet is damaged or not a Parquet file, in its footer: "):
        lines(path, 100)
    damaged = bytearray(whole)
    damaged[60:200] = bytes(140)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="in row group 0: "):
        lines(path, 100)
