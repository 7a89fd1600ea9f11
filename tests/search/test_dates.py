"""Dates in metadata are instants, whatever zone they name; a field of other texts as well stays text."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FilterError
from glow.index.columns import (
    Columns,
    ColumnsHeader,
    build_columns,
    duration_s,
    instant_of,
    join_columns,
    now_s,
    span_of,
)
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import count_values, evaluate
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document

ROWS = [
    {"at": "2024-05-01"},
    {"at": "2024-05-01T23:30:00-04:00"},  # 3:30 on the 2nd, in UTC
    {"at": "2024-05-02T00:00:00Z"},
    {"at": ["2024-05-03T08:00", "2023-01-01"]},
    {"at": None},
]


def columns_of(rows: Sequence[dict[str, Any]], folder: Path) -> tuple[Columns, ColumnsHeader]:
    folder.mkdir()
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row, metadata in enumerate(rows):
            writer.add(Document(f"d{row}", {"title": ("bees",)}, metadata))
    header = build_columns(DocumentStore(folder / "documents.sqlite"), folder)
    return Columns.open(folder, len(rows)), header


@pytest.fixture
def columns(tmp_path: Path) -> Columns:
    return columns_of(ROWS, tmp_path / "v")[0]


def rows_of(columns: Columns, **condition: Any) -> list[int]:
    mask = evaluate(parse_filter({"field": "at", **condition}, columns), columns)
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ({"gte": "2024-05-02"}, [1, 2, 3]),
        ({"gt": "2024-05-02"}, [3]),
        ({"lte": "2024-05-01"}, [0, 3]),
        ({"lt": "2024-05-02T03:30:00Z"}, [0, 2, 3]),
        ({"lte": "2024-05-02T03:30:00Z"}, [0, 1, 2, 3]),
        ({"gte": "2024-05-02T05:30+02:00", "lt": "2024-05-02T05:31+02:00"}, [1]),
        ({"eq": "2024-05-02"}, [1, 2]),
        ({"eq": "2024-05-02T03:30:00Z"}, [1]),
        ({"in": ["2023-01-01", "2024-05-01"]}, [0, 3]),
        ({"gt": "2023-06-01", "lt": "2024-01-01"}, []),  # one value must lie within both bounds
        ({"lt": "now"}, [0, 1, 2, 3]),
        ({"gte": "now-7d"}, []),
        ({"exists": False}, [4]),
        ({"eq": "yesterday"}, []),
    ],
)
def test_ranges_compare_instants(columns: Columns, condition: dict[str, Any], rows: list[int]) -> None:
    assert rows_of(columns, **condition) == rows


def test_a_bound_that_is_no_date_is_refused_with_what_is_one(columns: Columns) -> None:
    with pytest.raises(FilterError, match=r"holds dates.*now-7d"):
        rows_of(columns, gte="soon")
    with pytest.raises(FilterError, match=r"known: at \(dates\)"):
        rows_of(columns, gte=2024)


def test_facets_show_dates_as_they_were_written(columns: Columns) -> None:
    counted = count_values(columns, "at", np.arange(5), 10, 5)
    assert {value.value for value in counted.values} == {
        "2024-05-01",
        "2024-05-01T23:30:00-04:00",
        "2024-05-02T00:00:00Z",
        "2024-05-03T08:00",
        "2023-01-01",
    }


def test_a_field_of_dates_and_other_texts_stays_text_and_is_named(tmp_path: Path) -> None:
    columns, header = columns_of(
        [{"at": "2024-05-01"}, {"at": "spring"}, {"on": "2024-05-01"}], tmp_path / "v"
    )
    assert header.mixed == ["at"]
    assert list(columns.fields["at"].parts) == ["string"]
    assert list(columns.fields["on"].parts) == ["date", "string"]
    assert rows_of(columns, gte="2024-05-01T00") == [1]


@pytest.mark.parametrize(("late", "kinds"), [("2024-06-01", ["date", "string"]), ("summer", ["string"])])
def test_a_delta_of_other_texts_makes_the_field_text_as_a_rebuild_would(
    tmp_path: Path, late: str, kinds: list[str]
) -> None:
    base, _ = columns_of(ROWS, tmp_path / "base")
    delta, _ = columns_of([{"at": late}], tmp_path / "delta")
    joined = join_columns(base, delta, np.empty(0, np.int64), np.arange(6, dtype=np.uint32))
    assert list(joined.fields["at"].parts) == kinds


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=zones))
def test_an_instant_is_the_same_in_every_zone(moment: datetime) -> None:
    texts = [moment.isoformat(), moment.astimezone(UTC).isoformat(), moment.astimezone(UTC).isoformat(" ")]
    instants = {instant_of(text) for text in texts}
    assert instants == {(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}


@pytest.mark.parametrize(
    "text",
    ["", "2024", "2024-05", "2024-02-30", "20240501", "2024-05-01 ", "2024-5-1", "12:00", "9999-99-99"],
)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert instant_of(text) is None


def test_now_counts_in_units_and_is_the_last_full_minute() -> None:
    now = datetime(2024, 5, 8, 12, 0, 59, tzinfo=UTC)
    for text, same in [
        ("now", "2024-05-08T12:00:00Z"),
        ("now-7d", "2024-05-01T12:00:00Z"),
        ("now+36h", "2024-05-10T00:00:00Z"),
        ("now-90m", "2024-05-08T10:30:00Z"),
        ("now-1w", "2024-05-01T12:00:00Z"),
    ]:
        span, wanted = span_of(text, now), instant_of(same)
        assert span is not None and (span.first, span.last) == (wanted, wanted)
    assert span_of("now-7x", now) is None
    assert (duration_s("30d"), duration_s("0s"), duration_s("d"), duration_s("1.5h")) == (
        2_592_000,
        0,
        None,
        None,
    )
    assert now_s(now) % 60 == 0
    assert span_of("now-", now) is None


def test_one_documents_thousand_keys_do_not_take_the_columns_of_others(tmp_path: Path) -> None:
    crowd = {f"k{number}": number for number in range(50_000)}
    columns, _ = columns_of([crowd, {"tags": "bees"}], tmp_path / "v")
    assert "tags" in columns.fields
