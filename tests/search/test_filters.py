"""The filter language matches what a plain reading of it matches, and refuses what is no filter with its place."""

import json
import random
import re
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.collection import parse_document
from glow.errors import FilterError
from glow.index.columns import Columns, field_values, type_of
from glow.index.columns.filters import MAX_FAULTS, And, Between, Exists, Not, OneOf, Or, parse_filter
from glow.index.columns.masks import FilterMasks, evaluate
from tests.search.conftest import columns_of

Json = dict[str, Any]
FIELDS = ("a", "b", "c.d")


def matches(metadata: Json, term: Json) -> bool:
    """The reference: one document, one filter, read as docs/filters.md says."""
    if "and" in term:
        return all(matches(metadata, inner) for inner in term["and"])
    if "or" in term:
        return any(matches(metadata, inner) for inner in term["or"])
    if "not" in term:
        return not matches(metadata, term["not"])
    values = [value for name, value in field_values(metadata) if name == term["field"]]
    if "exists" in term:
        return bool(values) is term["exists"]

    def equal(value: Any, wanted: Any) -> bool:
        return bool(type_of(value) == type_of(wanted) and value == wanted)

    if "eq" in term:
        return any(equal(value, term["eq"]) for value in values)
    if "in" in term:
        return any(equal(value, wanted) for value in values for wanted in term["in"])
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "gt": lambda value, bound: bool(value > bound),
        "gte": lambda value, bound: bool(value >= bound),
        "lt": lambda value, bound: bool(value < bound),
        "lte": lambda value, bound: bool(value <= bound),
    }
    bounds = [(tests[name], bound) for name, bound in term.items() if name != "field"]
    return any(
        all(type_of(value) == type_of(bound) and test(value, bound) for test, bound in bounds)
        for value in values
    )


SOME_NUMBERS = [0, 1, 1.0, 2, 2.5, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1, 1e300, 0.1]
SOME_STRINGS = ["", "a", "b", "ab", "é", "\uffff", "\U00010000", "1", "true"]
NUMBERS, STRINGS = st.sampled_from(SOME_NUMBERS), st.sampled_from(SOME_STRINGS)
SCALARS = NUMBERS | STRINGS | st.booleans()


def a_range(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    low, high = st.sampled_from(["gt", "gte"]), st.sampled_from(["lt", "lte"])
    return st.builds(
        lambda names, low, high: {
            name: bound for name, bound in zip(names, (low, high), strict=True) if name
        },
        st.tuples(low | st.none(), high) | st.tuples(low, high | st.none()),
        kind,
        kind,
    )


CONDITIONS = st.builds(
    lambda field, condition: {"field": field, **condition},
    st.sampled_from(FIELDS),
    st.builds(lambda value: {"eq": value}, SCALARS)
    | st.builds(lambda values: {"in": values}, st.lists(SCALARS, max_size=5))
    | st.builds(lambda value: {"exists": value}, st.booleans())
    | a_range(NUMBERS)
    | a_range(STRINGS),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.builds(
            lambda name, terms: {name: terms}, st.sampled_from(["and", "or"]), st.lists(inner, max_size=4)
        )
        | st.builds(lambda term: {"not": term}, inner)
    ),
    max_leaves=12,
)
EVERY_TYPE: Json = {"a": ["x", 7, True], "b": ["x", 7, True], "c": {"d": ["x", 7, True]}}
"""Every field holds every type, so that every condition fits."""


def random_document(generator: random.Random) -> Json:
    def some() -> Any:
        return generator.choice([*SOME_NUMBERS, *SOME_STRINGS, True, False, None])

    def value() -> Any:
        return [some() for _ in range(generator.randrange(5))] if generator.random() < 0.4 else some()

    whole = {"a": value(), "b": some(), "c": {"d": value()}}
    return {name: content for name, content in whole.items() if generator.random() < 0.8}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], Columns]:
    """Documents with many values to get wrong, and their columns."""
    generator = random.Random(0)  # noqa: S311 - test data
    documents = [*(random_document(generator) for _ in range(100)), EVERY_TYPE]
    return documents, columns_of(documents, tmp_path_factory.mktemp("columns"))


@settings(max_examples=500)
@given(term=FILTERS)
def test_a_filter_matches_what_a_plain_reading_of_it_matches(
    many: tuple[list[Json], Columns], term: Json
) -> None:
    documents, columns = many
    found = evaluate(parse_filter(term, columns), columns)
    assert found.tolist() == [matches(metadata, term) for metadata in documents]


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    generator = np.random.default_rng(0)
    rows: list[Json] = [
        {
            "year": int(generator.integers(1990, 2025)),
            "lang": str(generator.choice(["en", "de", "fr"])),
            "tags": generator.choice(list("abcdef"), size=int(generator.integers(3))).tolist(),
            "open": bool(generator.random() < 0.5),
            "mixed": [1, "1"],
            "abstract": "long " * 1000,
        }
        for _ in range(500)
    ]
    return columns_of(rows, tmp_path_factory.mktemp("columns"))


def faults_of(value: Any, columns: Columns, **bounds: int) -> list[tuple[str, str]]:
    with pytest.raises(FilterError) as caught:
        parse_filter(value, columns, **bounds)
    assert len(caught.value.faults) <= MAX_FAULTS + 1
    assert all(len(fault.detail) < 4_000 and fault.detail.isprintable() for fault in caught.value.faults)
    return [(fault.pointer, fault.detail) for fault in caught.value.faults]


KNOWN = "known: lang (strings), mixed (numbers, strings), open (booleans), tags (strings), year (numbers)"


CONDITION = "expected a condition (eq, in, exists, gt, gte, lt, lte), found"


@pytest.mark.parametrize(
    ("value", "pointer", "detail"),
    [
        ({"field": "yeer", "eq": 1}, "/filter/field", f"no field 'yeer'; {KNOWN}"),
        ({"and": [{"field": "abstract", "eq": "x"}]}, "/filter/and/0/field", "a text of more than 2048 bytes; known: "),
        ({"not": {"or": [{"field": "year", "in": [2000, "2001"]}]}}, "/filter/not/or/0/in/1", "holds numbers, found '2001'"),
        ({"field": "year", "eq": True}, "/filter/eq", "field 'year' holds numbers, found true"),
        ({"field": "open", "eq": 1}, "/filter/eq", "field 'open' holds booleans, found 1"),
        ({"field": "open", "gt": False}, "/filter", "true and false have no order"),
        ({"field": "mixed", "gt": 1, "lt": "2"}, "/filter", "both bounds must be of one type"),
        ({"field": "year", "gt": 1, "gte": 2}, "/filter", "expected at most one bound on each side, found gt, gte"),
        ({"field": "year", "eq": 1, "lt": 2}, "/filter", "expected one condition, found 'eq', 'lt'"),
        ({"field": "year", "eq": None}, "/filter/eq", "found null; {'exists': false} asks for documents without"),
        ({"field": "year", "eq": [1]}, "/filter/eq", "expected a single value, found a list"),
        ({"field": "year", "in": 1}, "/filter/in", "expected a list of values, found 1"),
        ({"field": "year", "exists": 1}, "/filter/exists", "expected true or false, found 1"),
        ({"field": "year"}, "/filter", f"{CONDITION} none"),
        ({"field": "year", "ne": 1}, "/filter", f"{CONDITION} 'ne'"),
        ({"field": 3, "eq": 1}, "/filter/field", "expected the name of a field, found 3"),
        ({"eq": 1}, "/filter", "'eq' needs a field: {'price': {'eq': …}}"),
        ({"a/b": 1}, "/filter/a~1b", "no field 'a/b'"),
        ({"year": {}}, "/filter/year", f"{CONDITION} none"),
        ({"and": {}}, "/filter/and", "expected a list of filters, found an object"),
        ([], "/filter", "expected an object, found a list"),
        ({"field": "year", "eq": float("nan")}, "/filter/eq", "expected a finite number of at most 64 bits"),
        ({"field": "year", "lt": float("inf")}, "/filter/lt", "expected a finite number of at most 64 bits"),
        ({"field": "year", "lt": 10**5000}, "/filter/lt", "expected a finite number of at most 64 bits"),
        ({"field": "lang", "eq": 10**5000}, "/filter/eq", "found a number of more than 64 bits"),
        ({"field": "lang", "eq": "\ud800"}, "/filter/eq", "a lone surrogate is not allowed"),
        ({"field": "\ud800\x1b[31m", "eq": 1}, "/filter/field", r"no field '\ud800\x1b[31m'"),
    ],
)  # fmt: skip
def test_faulty_filters_name_their_place(columns: Columns, value: Any, pointer: str, detail: str) -> None:
    ((place, said),) = faults_of(value, columns)
    assert place == pointer and detail in said


def test_all_faults_are_told_together_up_to_a_bound(columns: Columns) -> None:
    bad = {"and": [{"field": "x"}, {"field": "year", "eq": "1"}, {"or": 1}]}
    assert [pointer for pointer, _ in faults_of(bad, columns)] == [
        "/filter/and/0/field",
        "/filter/and/1/eq",
        "/filter/and/2/or",
    ]
    assert len(faults_of({"and": [{"field": "x"}] * 500}, columns)) == MAX_FAULTS


def test_size_and_depth_are_bounded(columns: Columns) -> None:
    leaf = {"field": "year", "eq": 2000}
    assert faults_of({"or": [leaf] * 10_000}, columns) == [
        ("/filter/or/999", "more than 1000 conditions, groups and values")
    ]
    assert faults_of({"field": "year", "in": list(range(10_000))}, columns)[0][0] == "/filter/in"
    parse_filter({"or": [leaf] * 999}, columns)
    deep: Json = leaf
    for _ in range(15):
        deep = {"not": deep}
    parse_filter(deep, columns)
    assert faults_of({"not": deep}, columns)[0][1] == "nested deeper than 16 levels"
    for _ in range(100_000):
        deep = {"not": deep}
    assert faults_of(deep, columns)[0][1] == "nested deeper than 16 levels"
    assert faults_of({"and": [leaf, leaf]}, columns, max_terms=2)[0][0] == "/filter/and/1"
    assert faults_of({"year": 1, "lang": "en"}, columns, max_terms=1)[0][0] == "/filter/lang"
    assert faults_of({"not": leaf}, columns, max_depth=1)[0][0] == "/filter/not"


def test_equal_filters_have_one_form(columns: Columns) -> None:
    def form(value: Any) -> Any:
        return parse_filter(value, columns)

    a, b = {"field": "year", "eq": 2000}, {"field": "lang", "eq": "en"}
    assert form({"and": [a, b]}) == form({"and": [b, {"and": [a, a]}]})
    years = {"field": "year", "in": [2000, 2001]}
    assert form({"or": [a, {"field": "year", "in": [2001, 2000.0]}]}) == form(years)
    assert form({"not": {"not": a}}) == form({"and": [a]}) == OneOf("year", "number", (2000,))
    assert repr(form({"field": "year", "eq": 2000.0})) == repr(form(a))
    assert form({"field": "mixed", "eq": 1}) != form({"field": "mixed", "eq": "1"})
    assert form({"lang": "en", "year": 2000}) == form({"and": [a, b]}) and form({}) == And(())
    assert form({"year": {"gte": 1, "lt": 2}}) == form({"field": "year", "gte": 1, "lt": 2})
    assert form({"and": []}) == And(()) and form({"or": []}) == form({"field": "year", "in": []}) == Or(())
    assert form({"field": "tags", "exists": False}) == Not(Exists("tags"))
    assert form({"field": "year", "gte": 1, "lt": 2}) == Between("year", "number", 1, 2, True, False)


def test_masks_are_kept_within_a_bound_and_the_oldest_goes(columns: Columns) -> None:
    terms = [parse_filter({"field": "year", "eq": year}, columns) for year in range(1990, 2025)]
    room = FilterMasks(columns).mask(terms[0]).size_bytes + 8 * 200
    masks = FilterMasks(columns, 5 * room)
    first = masks.mask(terms[0])
    assert masks.mask(terms[0]) is first and not first.mask.flags.writeable
    assert first.count == int(first.mask.sum()) == len(first.rows)
    assert np.unpackbits(first.packed, bitorder="little")[:500].astype(bool).tolist() == first.mask.tolist()
    for term in terms:
        masks.mask(term)
        assert masks.size_bytes <= 5 * room
    assert masks.mask(terms[0]) is not first
    assert masks.mask(terms[-1]) is masks.mask(terms[-1])
    assert FilterMasks(columns, 10).mask(terms[0]).count == first.count  # too large to keep, not to answer


def test_long_filters_take_no_more_memory_than_short_ones(columns: Columns) -> None:
    """What a client sends is not kept: 100 filters of 40 KB each would be 4 MB."""
    masks = FilterMasks(columns)
    tracemalloc.start()
    for number in range(100):
        values = [f"{number}-{at}-{'x' * 60}" for at in range(600)]
        masks.mask(parse_filter({"field": "tags", "in": values}, columns))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held <= masks.size_bytes + 200_000


def test_threads_get_the_same_masks(columns: Columns) -> None:
    pairs = ("ab", "bc", "cd", "f", "ae")
    terms = [parse_filter({"field": "tags", "in": [*pair]}, columns) for pair in pairs]
    expected = [evaluate(term, columns).tolist() for term in terms]
    masks = FilterMasks(columns, 2_000)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda at: masks.mask(terms[at % 5]).mask.tolist() == expected[at % 5], range(400))
        assert all(found)
    assert masks.size_bytes <= 2_000


def test_messages_stay_short_where_fields_are_none_or_many_and_odd(tmp_path: Path) -> None:
    asked = {"field": "x", "exists": True}
    ((_, none),) = faults_of(asked, columns_of([{}], tmp_path / "none"))
    assert none == "no field 'x'; no document of this index has metadata"
    odd = columns_of([{f"\x1b{'n' * 200}{at}": at for at in range(100)}], tmp_path / "many")
    ((_, detail),) = faults_of(asked, odd)
    assert detail.endswith(" and 70 more") and "\\x1bnnn" in detail


PAGE = Path(__file__).parents[2] / "docs" / "filters.md"


def test_the_table_of_the_page_is_true(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (document,) = re.findall(r'^\{"_id": .*$', text, re.MULTILINE)
    rows = re.findall(r"^\|`(\{.*\})`\|(yes|no)\|$", text, re.MULTILINE)
    assert len(rows) >= 4
    columns = columns_of([parse_document(document.encode(), ["title"]).metadata], tmp_path)
    for expression, is_match in rows:
        found = evaluate(parse_filter(json.loads(expression), columns), columns)
        assert found.tolist() == [is_match == "yes"], expression
