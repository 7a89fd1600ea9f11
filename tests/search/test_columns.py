"""Columns hold what documents' metadata holds, in bounded memory; facets count what a plain count counts."""

import random
from collections import Counter
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
    duration_s,
    field_values,
    instant_of,
    join_columns,
    now_s,
    pick,
    span_of,
    type_of,
)
from glow.index.columns import build as columns_build
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import FacetRequest, count_values, evaluate, parse_facets
from tests.search.conftest import columns_of

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
        "lang": generator.choice(["en", "de", "", "é", "\uffff", "\U0001f600", None]),
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


def test_thousands_of_keys_leave_the_most_frequent_ones(make: Make) -> None:
    columns = make([{"common": 1, **{f"key{row}-{at}": at for at in range(30)}} for row in range(100)])
    assert len(columns.fields) == MAX_FIELDS and "common" in columns.fields
    name, reason = next(iter(columns.left_out.items()))
    assert reason == f"{MAX_FIELDS} other fields occur in more documents"
    assert len(columns.left_out) == 1_000 and name not in columns.fields


def test_one_documents_thousand_keys_do_not_take_the_columns_of_others(make: Make) -> None:
    assert "tags" in make([{f"k{number}": number for number in range(50_000)}, {"tags": "bees"}]).fields


def test_texts_and_endless_names_get_no_column(make: Make) -> None:
    long = "n" * (MAX_NAME_CHARACTERS + 1)
    columns = make([{"abstract": "é" * 1025, long: 1, "a": {long: 1}, "ok": "é" * 1024}])
    assert list(columns.fields) == ["ok"]
    assert columns.left_out == {"abstract": "it holds a text of more than 2048 bytes"}


def test_changed_bytes_are_refused_or_harmless_and_never_crash(tmp_path: Path) -> None:
    """The manifest's checksums come first; this is what stands behind them."""
    generator = random.Random(1)  # noqa: S311 - test data
    columns_of([random_metadata(generator) for _ in range(40)], tmp_path)
    generator = random.Random(2)  # noqa: S311 - as above
    for name in ("columns.json", "values.bin", "order.npy"):
        path = tmp_path / "columns" / name
        whole = path.read_bytes()
        for _ in range(150):
            changed = bytearray(whole)
            changed[generator.randrange(len(whole))] = generator.randrange(256)
            path.write_bytes(changed)
            try:
                columns = Columns.open(tmp_path, 40)
            except (FormatError, MismatchError):
                continue
            for field in columns.fields.values():
                for part in field.parts.values():
                    assert int(part.codes.max()) <= len(part.values)
                    assert [part.values.value(place) for place in range(len(part.values))]
        path.write_bytes(whole)


ROWS = [
    {"at": "2024-05-01"},
    {"at": "2024-05-01T23:30:00-04:00"},  # 3:30 on the 2nd, in UTC
    {"at": "2024-05-02T00:00:00Z"},
    {"at": ["2024-05-03T08:00", "2023-01-01"]},
    {"at": None},
]


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
def test_ranges_compare_instants(make: Make, condition: dict[str, Any], rows: list[int]) -> None:
    assert rows_of(make(ROWS), **condition) == rows


def test_dates_are_told_as_they_were_written_and_others_are_refused(make: Make) -> None:
    columns = make(ROWS)
    values = {value.value for value in count_values(columns, "at", np.arange(5), 10, 5).values}
    assert values == {*(row["at"] for row in ROWS[:3]), *ROWS[3]["at"]}
    with pytest.raises(FilterError, match=r"holds dates.*now-7d"):
        rows_of(columns, gte="soon")
    with pytest.raises(FilterError, match=r"known: at \(dates\)"):
        rows_of(columns, gte=2024)


def test_a_field_of_dates_and_other_texts_stays_text_and_is_named(tmp_path: Path) -> None:
    columns = columns_of([{"at": "2024-05-01"}, {"at": "spring"}, {"on": "2024-05-01"}], tmp_path / "v")
    header = ColumnsHeader.model_validate_json((tmp_path / "v/columns/columns.json").read_bytes())
    assert header.mixed == ["at"]
    assert list(columns.fields["at"].parts) == ["string"]
    assert list(columns.fields["on"].parts) == ["date", "string"]
    assert rows_of(columns, gte="2024-05-01T00") == [1]


@pytest.mark.parametrize(("late", "kinds"), [("2024-06-01", ["date", "string"]), ("summer", ["string"])])
def test_other_texts_make_the_field_text_as_a_rebuild(make: Make, late: str, kinds: list[str]) -> None:
    segments = [make(ROWS), make([{"at": late}])]
    joined = join_columns(segments, [np.empty(0, np.int64)] * 2, np.arange(6, dtype=np.uint32))
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
    assert span_of("now-7x", now) is span_of("now-", now) is None
    assert [*map(duration_s, ("30d", "0s", "d", "1.5h"))] == [2_592_000, 0, None, None]
    assert now_s(now) % 60 == 0


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


def plain_count(rows: Sequence[Metadata], limit: int) -> list[tuple[Any, int]]:
    """The reference: (value, count) by count, then booleans, numbers, strings, then value."""
    counts: Counter[tuple[Any, Any]] = Counter()
    for metadata in rows:
        counts.update({(type_of(value), value) for name, value in field_values(metadata) if name == "x"})
    ranks = {"boolean": 0, "number": 1, "string": 2}
    by_value = sorted(counts, key=lambda key: (ranks[key[0]], key[1]))
    best = sorted(by_value, key=lambda key: -counts[key])[:limit]
    return [(value, counts[kind, value]) for kind, value in best]


def test_facets_are_those_of_a_plain_count(make: Make) -> None:
    """Of candidates given by their rows, or of all that a filter allows."""
    generator = random.Random(0)  # noqa: S311 - test data
    some = [0, 1, 2.5, True, False, "", "a", "b", "é", "1", None]
    rows: list[Metadata] = [
        {"x": [generator.choice(some) for _ in range(generator.randrange(5))]} for _ in range(79)
    ]
    rows.append({"x": "a"})
    columns = make(rows)
    for size in (0, 1, 2, 10, 40, 80):
        chosen = generator.sample(range(80), size)
        mask = np.isin(np.arange(80), chosen)
        for candidates in (np.array(chosen, np.int64), mask):
            for limit in (1, 4, 100):
                found = count_values(columns, "x", candidates, limit, matching=80)
                pairs = [(item.value, item.count) for item in found.values]
                expected = plain_count([rows[row] for row in chosen], limit)
                assert list(map(repr, pairs)) == list(map(repr, expected))
                assert (found.counted, found.approximate) == (size, size < 80)


def test_facets_are_checked_with_their_places(make: Make) -> None:
    columns = make([{"lang": "en", "year": 2000}])
    assert parse_facets([{"field": "lang"}, {"field": "year", "limit": 100}], columns) == (
        FacetRequest("lang", 10),
        FacetRequest("year", 100),
    )
    bad = [{"field": "x"}, {"field": "lang", "limit": 101}, {"field": "lang", "limit": True}, 1, {"limit": 1}]
    with pytest.raises(FilterError) as caught:
        parse_facets([*bad, {"field": "year"}, {"field": "year"}, {"field": "lang", "more": 1}], columns)
    assert [fault.pointer for fault in caught.value.faults] == [
        "/facets/0/field", "/facets/1/limit", "/facets/2/limit", "/facets/3", "/facets/4", "/facets/6/field",
        "/facets/7",
    ]  # fmt: skip
    for value in ({}, None, [{"field": "lang"}] * 17):
        with pytest.raises(FilterError, match="/facets: expected a list of at most 16 facets"):
            parse_facets(value, columns)
