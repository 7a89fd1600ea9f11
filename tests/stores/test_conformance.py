"""Every store of vectors answers as the others: FAISS, Milvus Lite, and a Milvus server."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from glow.errors import FilterError, MismatchError, QueryError
from glow.index import RowMask
from glow.index.columns import Columns
from glow.index.columns.filters import And, Not, OneOf, parse_filter
from glow.index.columns.masks import evaluate
from glow.index.milvus import FilterFields, MilvusVectors, StoreHeader, connect, drop_collection
from glow.index.vectors import IndexKind, SearchParams
from tests.search.test_filters import FILTERS, Json
from tests.stores.conftest import COUNT, DIMENSIONS, HASHES, PATIENT, Made, Vectors

Stores = Callable[[str, IndexKind], Made]
STORES = ("faiss", "lite", "milvus")


def exact_rows(vectors: Vectors, queries: Vectors, k: int, allowed: RowMask | None = None) -> list[list[int]]:
    scores = queries @ vectors.T
    if allowed is not None:
        scores = np.where(allowed.mask, scores, -np.inf)
    return [np.lexsort((np.arange(len(vectors)), -row))[:k].tolist() for row in scores]


def recall(found: list[list[int]], expected: list[list[int]]) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, expected, strict=True)]))


@pytest.mark.parametrize("store", STORES)
def test_an_exact_index_finds_the_same_ids_in_the_same_order(
    store: str, made: Stores, vectors: Vectors, queries: Vectors
) -> None:
    view = made(store, "flat").view
    scores, rows = view.search(queries, 20)
    assert rows.tolist() == exact_rows(vectors, queries, 20)
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, vectors[rows]), atol=2e-6)
    assert (len(view), view.dimensions, view.kind, view.has_vectors) == (COUNT, DIMENSIONS, "flat", True)


@pytest.mark.parametrize("store", STORES)
def test_equal_vectors_rank_by_the_given_order(store: str, made: Stores, vectors: Vectors) -> None:
    order = np.random.default_rng(3).permutation(COUNT).astype(np.uint32)
    rows = made(store, "flat").view.search(vectors[700:701], 5, order=order)[1][0]
    assert rows.tolist() == sorted(range(700, 710), key=lambda row: order[row])[:5]


@pytest.mark.parametrize("store", STORES)
def test_an_approximate_index_finds_nearly_all(
    store: str, made: Stores, vectors: Vectors, queries: Vectors
) -> None:
    scores, rows = made(store, "hnsw").view.search(queries, 10, SearchParams(ef_search=200))
    assert recall(rows.tolist(), exact_rows(vectors, queries, 10)) >= 0.95
    assert (np.diff(scores, axis=1) <= 0).all()


MASKS = {
    "none": np.zeros(COUNT, np.bool_),
    "few": np.arange(COUNT) % 300 == 7,
    "a tenth": np.arange(COUNT) % 10 == 3,
    "nearly all": np.arange(COUNT) % 50 != 0,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("store", STORES)
def test_only_allowed_rows_are_found_and_all_of_those(
    store: str, mask: str, made: Stores, vectors: Vectors, queries: Vectors
) -> None:
    allowed = RowMask(MASKS[mask].copy())
    for kind in ("flat", "hnsw"):
        scores, rows = made(store, kind).view.search(queries, 10, SearchParams(ef_search=300), allowed)
        expected = exact_rows(vectors, queries, min(10, allowed.count), allowed)
        assert rows.shape == scores.shape == (len(queries), min(10, allowed.count))
        assert allowed.mask[rows].all()
        if kind == "flat" or mask == "few":
            assert rows.tolist() == expected
        elif allowed.count:
            assert recall(rows.tolist(), expected) >= 0.95


def renamed(term: Json) -> Json:
    """A filter over the fields here."""
    names = {"a": "name", "b": "number", "c.d": "mixed"}
    if isinstance(term, list):
        return [renamed(each) for each in term]
    if isinstance(term, dict):
        found = {
            name: renamed(value) if name in ("and", "or", "not") else value for name, value in term.items()
        }
        return {**found, "field": names.get(term["field"], term["field"])} if "field" in term else found
    return term


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(term=FILTERS)
def test_what_milvus_is_told_is_what_the_columns_say(term: Json, made: Stores, columns: Columns) -> None:
    """Every row that a translated filter matches, counted by the server itself."""
    try:
        expression = parse_filter(renamed(term), columns)
    except FilterError:
        return  # of a type that the field does not hold
    said = FilterFields(columns).translate(expression)
    assert said is not None
    header = made("milvus", "flat").header
    assert header is not None
    found = connect(header.address, PATIENT).run(
        lambda client, _: client.query(header.collection, filter=said, output_fields=["row"], limit=16_384)
    )
    expected = np.flatnonzero(evaluate(expression, columns)).tolist()
    assert sorted(each["row"] for each in found) == expected, said


def test_lists_are_not_translated_and_long_filters_neither(columns: Columns) -> None:
    fields = FilterFields(columns)
    assert not any("tags" in name for name in fields.names)
    assert fields.translate(parse_filter({"field": "tags", "eq": "t1"}, columns)) is None
    many = OneOf("row", "number", tuple(range(1_500)))
    assert fields.translate(many) is not None
    assert fields.translate(And((many, Not(many)))) is None


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_scores_and_vectors_of_given_rows_are_the_true_ones(
    store: str, kind: IndexKind, made: Stores, vectors: Vectors, queries: Vectors
) -> None:
    rows = np.array([7, 1_499, 0, 7, 703])
    view = made(store, kind).view
    np.testing.assert_allclose(view.score(queries[0], rows), vectors[rows] @ queries[0], atol=2e-6)
    np.testing.assert_array_equal(view.vectors(rows), vectors[rows])
    assert view.score(queries[0], rows[:0]).shape == (0,)


@pytest.mark.parametrize("store", STORES)
def test_more_hits_than_there_are_and_masks_of_another_index(
    store: str, made: Stores, queries: Vectors
) -> None:
    view = made(store, "flat").view
    assert view.search(queries[:1], 5_000)[1].shape == (1, COUNT)
    with pytest.raises(MismatchError, match="mask of 20 rows"):
        view.search(queries[:1], 5, None, RowMask(np.ones(20, np.bool_)))


@pytest.mark.parametrize("store", ["lite", "milvus"])
def test_only_a_flat_collection_is_searched_exactly(store: str, made: Stores, queries: Vectors) -> None:
    made(store, "flat").view.search(queries[:1], 5, SearchParams(exact=True))
    with pytest.raises(QueryError, match="cannot be searched exactly"):
        made(store, "hnsw").view.search(queries[:1], 5, SearchParams(exact=True))


def opened(header: StoreHeader) -> MilvusVectors:
    return MilvusVectors(connect(header.address, PATIENT), header)


@pytest.mark.parametrize("store", ["lite", "milvus"])
def test_a_collection_of_another_version_is_refused(
    store: str, make: Callable[..., Made], vectors: Vectors
) -> None:
    header = make(store, "flat", vectors[:200], name="of_two").header
    assert header is not None
    for name in HASHES:
        with pytest.raises(MismatchError, match="another model, term statistics or set"):
            opened(header).check({**HASHES, name: "x"})
    for field, value in (("sample", "0" * 64), ("rows", 199)):
        with pytest.raises(MismatchError, match="another model, term statistics or set"):
            opened(header.model_copy(update={field: value})).check(HASHES)
    other = {"row": 0, "vector": vectors[1]}
    connect(header.address, PATIENT).run(lambda client, _: client.upsert(header.collection, [other]))
    with pytest.raises(MismatchError, match="holds other rows"):
        opened(header).check(HASHES)
    connect(header.address, PATIENT).run(lambda client, _: client.delete(header.collection, ids=[5]))
    with pytest.raises(MismatchError, match="holds 199 rows, expected 200"):
        opened(header).check(HASHES)
    drop_collection(connect(header.address, PATIENT), header.collection)
    drop_collection(connect(header.address, PATIENT), header.collection)  # once more is no error
    with pytest.raises(MismatchError, match="collection is missing"):
        opened(header).check(HASHES)
