"""Facets count what a plain count counts, within bounds, and say when they saw only some documents."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glow.errors import FilterError
from glow.index.columns import Columns, field_values, type_of
from glow.index.columns.masks import FacetCounts, FacetRequest, ValueCount, count_values, parse_facets
from tests.search.made_columns import columns_of

Json = dict[str, Any]


def plain_count(rows: Sequence[Json], limit: int) -> list[tuple[Any, int]]:
    """The reference: (value, count) by count, then booleans, numbers, strings, then value."""
    counts: Counter[tuple[Any, Any]] = Counter()
    for metadata in rows:
        counts.update({(type_of(value), value) for name, value in field_values(metadata) if name == "x"})
    ranks = {"boolean": 0, "number": 1, "string": 2}
    by_value = sorted(counts, key=lambda key: (ranks[key[0]], key[1]))
    best = sorted(by_value, key=lambda key: -counts[key])[:limit]
    return [(value, counts[kind, value]) for kind, value in best]


SCALARS = st.sampled_from([0, 1, 1.0, 2.5, True, False, "", "a", "b", "é", "1"])
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={"x": SCALARS | st.lists(SCALARS | st.none(), max_size=4)}),
    max_size=15,
)


@given(ROWS, st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_counts_are_those_of_a_plain_count(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Json], data: st.DataObject
) -> None:
    documents: list[Json] = [*rows, {"x": ["a", 7]}]
    columns = columns_of(documents, tmp_path_factory.mktemp("columns"))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(documents) - 1))))
    limit = data.draw(st.integers(1, 8))
    mask = np.zeros(len(documents), np.bool_)
    mask[chosen] = True
    expected = plain_count([documents[row] for row in chosen], limit)
    for given_rows in (np.array(chosen[::-1], np.int64), mask):
        found = count_values(columns, "x", given_rows, limit, len(documents))
        pairs = [(item.value, item.count) for item in found.values]
        assert [(type_of(value), value, count) for value, count in pairs] == [
            (type_of(value), value, count) for value, count in expected
        ]
        assert (found.counted, found.approximate) == (len(chosen), len(chosen) < len(documents))


def test_counts_of_many_documents_are_those_of_a_plain_count(tmp_path: Path) -> None:
    """Hypothesis above finds small cases; these have many values to get wrong."""
    generator = random.Random(0)  # noqa: S311 - test data
    some = [0, 1, 2.5, True, False, "", "a", "b", "é", "1"]
    documents: list[Json] = [
        {"x": [generator.choice(some) for _ in range(generator.randrange(5))]} for _ in range(80)
    ]
    columns = columns_of(documents, tmp_path)
    for size in (1, 2, 10, 40, 80):
        chosen = generator.sample(range(80), size)
        found = count_values(columns, "x", np.array(chosen), 100, 80)
        pairs = [(item.value, item.count) for item in found.values]
        assert list(map(repr, pairs)) == list(map(repr, plain_count([documents[row] for row in chosen], 100)))


@pytest.fixture
def columns(tmp_path: Path) -> Columns:
    rows: list[Json] = [{"lang": lang, "year": 2000} for lang in ("en", "de", "en", "fr", "fr")]
    return columns_of(rows, tmp_path)


def test_candidates_are_told_from_the_whole_filtered_set(columns: Columns) -> None:
    assert count_values(columns, "lang", np.array([0, 1, 2]), 10, matching=5) == FacetCounts(
        (ValueCount("en", 2), ValueCount("de", 1)), 3, True
    )
    whole = count_values(columns, "lang", np.ones(5, np.bool_), 2, matching=5)
    assert whole == FacetCounts((ValueCount("en", 2), ValueCount("fr", 2)), 5, False)
    assert count_values(columns, "lang", np.empty(0, np.int64), 2, matching=0) == FacetCounts((), 0, False)


def test_facets_are_checked_with_their_places(columns: Columns) -> None:
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
    assert caught.value.faults[0].detail == "no field 'x'; known: lang (strings), year (numbers)"
    for value in ({}, None, [{"field": "lang"}] * 17):
        with pytest.raises(FilterError, match="/facets: expected a list of at most 16 facets"):
            parse_facets(value, columns)
