"""Columns hold what documents' metadata holds, in bounded memory, and a damaged file is refused by name."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FilterError, FormatError, MismatchError
from glow.index.columns import (
    MAX_FIELDS,
    MAX_NAME_CHARACTERS,
    Columns,
    ColumnsHeader,
    build_columns,
    duration_s,
    instant_of,
    join_columns,
    now_s,
    pick,
    span_of,
    type_of,
)
from glow.index.columns import build as columns_build
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import count_values, evaluate
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document
from tests.search.made_columns import columns_of

Metadata = dict[str, Any]
Make = Callable[[Sequence[Metadata]], Columns]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda rows: columns_of(rows, tmp_path / f"v{len(list(tmp_path.iterdir()))}")


def values_of(columns: Columns, name: str, row: int) -> list[Any]:
    """What a document holds in a field, read back; true and 1 are told apart by their text."""
    found = []
    for part in columns.fields[name].parts.values():
        codes = part.codes[row : row + 1]
        if part.offsets is not None:
            codes = part.codes[part.offsets[row] : part.offsets[row + 1]]
        found += [part.values.value(int(code) - 1) for code in codes if code]
    return sorted(found, key=repr)


def random_metadata(generator: random.Random) -> Metadata:
    return {
        "year": generator.choice([1999, 2000.5, 2**53, 2**53 + 1, -(2**63) + 1, 2**63 - 1, None]),
        "lang": generator.choice(["en", "de", "", "é", "\U0001f600", None]),
        "tags": [generator.choice("abc") for _ in range(generator.randrange(4))],
        "mixed": generator.choice([1, 1.0, True, False, "1", [1, "1", None, True]]),
        "place": {"city": generator.choice(["Bern", "東京"]), "at": [generator.random()]},
        "authors": [{"name": generator.choice(["Ada", "Bo"])} for _ in range(generator.randrange(3))],
    }


@pytest.mark.parametrize("run_values", [7, 1 << 18])
def test_columns_hold_every_value(make: Make, monkeypatch: pytest.MonkeyPatch, run_values: int) -> None:
    monkeypatch.setattr(columns_build, "RUN_VALUES", run_values)  # many small runs are merged, or one
    generator = random.Random(0)  # noqa: S311 - test data
    rows = [random_metadata(generator) for _ in range(300)]
    columns = make(rows)
    assert sorted(columns.fields) == "authors.name lang mixed place.at place.city tags year".split()
    for row, metadata in enumerate(rows):
        expected = {**metadata, **{f"place.{key}": value for key, value in metadata["place"].items()}}
        expected["authors.name"] = [author["name"] for author in metadata["authors"]]
        for name in columns.fields:
            value = expected[name]
            wanted = {(type_of(item), item) for item in (value if isinstance(value, list) else [value])}
            found = values_of(columns, name, row)
            assert {(type_of(item), item) for item in found} == wanted - {(None, None)}, (name, row)
            assert len(found) == len(set(map(repr, found)))
    for field in columns.fields.values():
        for part in field.parts.values():
            places = [part.values.value(place) for place in range(len(part.values))]
            assert places == sorted(set(places))
            assert [part.find(value) for value in places] == [*range(1, len(places) + 1)]


def test_whole_numbers_of_64_bits_stay_exact_and_lie_in_order(make: Make) -> None:
    numbers = [2**63 - 1, 2**53 + 1, 0.5, 2**53, -(2**63) + 1, 1e300, 2**63 - 2]
    part = make([{"x": number} for number in numbers]).fields["x"].parts["number"]
    assert [part.values.value(place) for place in range(len(part.values))] == sorted(numbers)
    assert [part.find(number) for number in sorted(numbers)] == [1, 2, 3, 4, 5, 6, 7]
    assert part.find(2**53 + 2) == part.find(2**63) == 0
    assert list(part.between(2**53, 2**63 - 2, includes_low=False)) == [4, 5]


def test_strings_lie_in_code_point_order(make: Make) -> None:
    words = ["é", "\uffff", "z", "", "\U00010000", "Z"]  # UTF-16 would put the last but one before \uffff
    part = make([{"x": word} for word in words]).fields["x"].parts["string"]
    assert [part.values.value(place) for place in range(6)] == ["", "Z", "z", "é", "\uffff", "\U00010000"]
    assert list(part.between("a", "é")) == [3, 4]


def test_order_is_the_rank_of_each_id_in_code_point_order(tmp_path: Path) -> None:
    ids = ["b", "é", "a", "\U00010000", "\uffff", "B", "a/1"]
    with DocumentWriter(tmp_path / "documents.sqlite") as writer:
        for identifier in ids:
            writer.add(Document(identifier, {"title": ("bees",)}))
    build_columns(DocumentStore(tmp_path / "documents.sqlite"), tmp_path)
    order = Columns.open(tmp_path, len(ids)).order
    assert order.tolist() == [sorted(ids).index(identifier) for identifier in ids]
    assert order.dtype == np.uint32


def test_thousands_of_keys_leave_the_most_frequent_ones(make: Make) -> None:
    columns = make([{"common": 1, **{f"key{row}-{at}": at for at in range(30)}} for row in range(100)])
    assert len(columns.fields) == MAX_FIELDS and "common" in columns.fields
    name, reason = next(iter(columns.left_out.items()))
    assert reason == f"{MAX_FIELDS} other fields occur in more documents"
    assert len(columns.left_out) == 1_000 and name not in columns.fields


def test_texts_and_endless_names_get_no_column(make: Make) -> None:
    long = "n" * (MAX_NAME_CHARACTERS + 1)
    columns = make([{"abstract": "é" * 1025, long: 1, "a": {long: 1}, "ok": "é" * 1024}])
    assert list(columns.fields) == ["ok"]
    assert columns.left_out == {"abstract": "it holds a text of more than 2048 bytes"}


@pytest.mark.parametrize("rows", [[], [{}], [{"x": None, "y": [], "z": {}}, {}]])
def test_documents_without_metadata_have_no_fields(make: Make, rows: list[Metadata]) -> None:
    columns = make(rows)
    assert columns.fields == {} and len(columns.order) == len(rows)


@pytest.fixture
def folder(make: Make, tmp_path: Path) -> Path:
    generator = random.Random(1)  # noqa: S311 - test data
    make([random_metadata(generator) for _ in range(40)])
    return tmp_path / "v0"


@pytest.mark.parametrize("name", ["columns.json", "values.bin", "order.npy"])
def test_a_missing_or_truncated_file_is_refused_by_name(folder: Path, name: str) -> None:
    path = folder / "columns" / name
    whole = path.read_bytes()
    for length in (0, 1, 30, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=rf"columns/{name}"):
            Columns.open(folder, 40)
    path.unlink()
    with pytest.raises(FormatError, match=rf"columns/{name}"):
        Columns.open(folder, 40)


def test_changed_bytes_are_refused_or_harmless_and_never_crash(folder: Path) -> None:
    """The manifest's checksums come first; this is what stands behind them."""
    generator = random.Random(2)  # noqa: S311 - test data
    for name in ("columns.json", "values.bin", "order.npy"):
        path = folder / "columns" / name
        whole = path.read_bytes()
        for _ in range(150):
            changed = bytearray(whole)
            changed[generator.randrange(len(whole))] = generator.randrange(256)
            path.write_bytes(changed)
            try:
                columns = Columns.open(folder, 40)
            except (FormatError, MismatchError):
                continue
            for field in columns.fields.values():
                for part in field.parts.values():
                    assert int(part.codes.max()) <= len(part.values)
                    assert [part.values.value(place) for place in range(len(part.values))]
        path.write_bytes(whole)


def test_pickles_other_types_and_foreign_headers_are_refused(folder: Path) -> None:
    order = folder / "columns" / "order.npy"
    for foreign in (np.array([{}] * 40), np.arange(40), np.arange(39, dtype=np.uint32)):
        np.save(order, foreign, allow_pickle=True)
        with pytest.raises(FormatError, match=r"columns/order\.npy"):
            Columns.open(folder, 40)
    header = folder / "columns" / "columns.json"
    body = json.loads(header.read_text())
    for change in ({"format": 2}, {"fields": [{"name": "x", "documents": 1, "parts": []}]}, {"extra": 1}):
        header.write_text(json.dumps({**body, **change}))
        with pytest.raises(FormatError, match=r"columns/columns\.json"):
            Columns.open(folder, 40)


def test_columns_of_another_index_or_without_checksum_are_refused(folder: Path) -> None:
    with pytest.raises(MismatchError, match="describes 40 documents, the index has 41"):
        Columns.open(folder, 41)
    with pytest.raises(MismatchError, match=r"the manifest lacks columns/values\.bin"):
        Columns.open(folder, 40, ["columns/columns.json", "columns/order.npy"])


ROWS = [
    {"at": "2024-05-01"},
    {"at": "2024-05-01T23:30:00-04:00"},  # 3:30 on the 2nd, in UTC
    {"at": "2024-05-02T00:00:00Z"},
    {"at": ["2024-05-03T08:00", "2023-01-01"]},
    {"at": None},
]


@pytest.fixture
def columns(tmp_path: Path) -> Columns:
    return columns_of(ROWS, tmp_path / "v")


def rows_of(columns: Columns, **condition: Any) -> list[int]:
    return np.flatnonzero(evaluate(parse_filter({"field": "at", **condition}, columns), columns)).tolist()


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
    assert {value.value for value in count_values(columns, "at", np.arange(5), 10, 5).values} == {
        "2024-05-01",
        "2024-05-01T23:30:00-04:00",
        "2024-05-02T00:00:00Z",
        "2024-05-03T08:00",
        "2023-01-01",
    }


def test_a_field_of_dates_and_other_texts_stays_text_and_is_named(tmp_path: Path) -> None:
    columns = columns_of([{"at": "2024-05-01"}, {"at": "spring"}, {"on": "2024-05-01"}], tmp_path / "v")
    header = ColumnsHeader.model_validate_json((tmp_path / "v/columns/columns.json").read_bytes())
    assert header.mixed == ["at"]
    assert list(columns.fields["at"].parts) == ["string"]
    assert list(columns.fields["on"].parts) == ["date", "string"]
    assert rows_of(columns, gte="2024-05-01T00") == [1]


@pytest.mark.parametrize(("late", "kinds"), [("2024-06-01", ["date", "string"]), ("summer", ["string"])])
def test_other_texts_make_the_field_text_as_a_rebuild(tmp_path: Path, late: str, kinds: list[str]) -> None:
    base = columns_of(ROWS, tmp_path / "base")
    delta = columns_of([{"at": late}], tmp_path / "delta")
    joined = join_columns([base, delta], [np.empty(0, np.int64)] * 2, np.arange(6, dtype=np.uint32))
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
    spans = ("30d", "0s", "d", "1.5h")
    assert [*map(duration_s, spans)] == [2_592_000, 0, None, None]
    assert now_s(now) % 60 == 0
    assert span_of("now-", now) is None


def test_one_documents_thousand_keys_do_not_take_the_columns_of_others(tmp_path: Path) -> None:
    crowd = {f"k{number}": number for number in range(50_000)}
    columns = columns_of([crowd, {"tags": "bees"}], tmp_path / "v")
    assert "tags" in columns.fields


def test_a_dotted_path_picks_that_part_of_the_metadata() -> None:
    metadata = {
        "place": {"city": "Bern", "zip": 3000, "lake": None},
        "authors": [{"name": "Ada", "born": 1815}, {"born": 1906}, "anonymous"],
        "year": 2024,
        "a.b": {"c": 1},
    }
    assert pick(metadata, {"place.city"}) == {"place": {"city": "Bern"}}
    assert pick(metadata, {"place", "place.city"}) == {"place": metadata["place"]}
    both = {"place": {"city": "Bern", "zip": 3000}, "year": 2024}
    assert pick(metadata, {"place.zip", "year", "place.city"}) == both
    assert pick(metadata, {"authors.name", "a.b.c"}) == {"authors": [{"name": "Ada"}], "a.b": {"c": 1}}
    assert pick(metadata, {"place.country", "year.month", "plac"}) == {}
