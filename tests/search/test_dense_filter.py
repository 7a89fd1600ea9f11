"""A search among some rows finds what comparing with each of them finds, however few they are."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index import RowMask
from glow.index.vectors import KINDS, DenseIndex, IndexKind, SearchParams, build_dense, set_threads
from glow.index.vectors import index as dense_module

Vectors = NDArray[np.float32]
COUNT = 3000
SHARES = (1 / COUNT, 0.003, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9, 0.99, 1.0)


@pytest.fixture(scope="module")
def indexes(vectors: Vectors) -> dict[IndexKind, DenseIndex]:
    set_threads(1)
    return {kind: build_dense(vectors, kind) for kind in KINDS}


def mask_of(share: float, seed: int = 0) -> RowMask:
    mask = np.zeros(COUNT, np.bool_)
    rows = np.random.default_rng(seed).choice(COUNT, max(round(share * COUNT), 1), replace=False)
    mask[rows] = True
    return RowMask(mask)


def brute_force(vectors: Vectors, queries: Vectors, k: int, allowed: RowMask) -> NDArray[np.int64]:
    scores = np.where(allowed.mask, queries @ vectors.T, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, : min(k, allowed.count)]


def recall(found: NDArray[np.int64], expected: NDArray[np.int64]) -> float:
    shares = [len(set(row) & set(wanted)) / len(wanted) for row, wanted in zip(found, expected, strict=True)]
    return float(np.mean(shares))


@pytest.fixture(params=[None, 0], ids=["as it decides", "always by the graph"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3,000 vectors the graph is hardly worth its while, so it is also searched wherever it can be."""
    if request.param == 0:
        monkeypatch.setattr(dense_module, "should_scan", lambda *_: False)
        monkeypatch.setattr(dense_module, "should_scan_codes", lambda *_: False)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_the_nearest_allowed_rows(
    indexes: dict[IndexKind, DenseIndex],
    vectors: Vectors,
    queries: Vectors,
    kind: IndexKind,
    share: float,
    way: None,
) -> None:
    allowed = mask_of(share)
    scores, rows = indexes[kind].search(queries, 10, allowed=allowed)
    expected = brute_force(vectors, queries, 10, allowed)
    assert rows.shape == scores.shape == expected.shape
    assert allowed.mask[rows[rows >= 0]].all()
    assert (rows >= 0).all() or kind.startswith("ivf")
    least = {"flat": 1.0, "hnsw": 0.97, "ivf-pq": 0.9}[kind]
    assert recall(rows, expected) >= least
    assert (np.diff(scores, axis=1) <= 0).all()
    exact = np.einsum("qd,qkd->qk", queries, vectors[rows])
    np.testing.assert_allclose(scores, exact, atol=5e-3 if kind == "ivf-pq" else 2e-6)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("share", [0.003, 0.5])
def test_an_exact_search_among_some_rows_equals_brute_force(
    indexes: dict[IndexKind, DenseIndex], vectors: Vectors, queries: Vectors, kind: IndexKind, share: float
) -> None:
    allowed = mask_of(share)
    rows = indexes[kind].search(queries, 50, SearchParams(exact=True), allowed)[1]
    np.testing.assert_array_equal(rows, brute_force(vectors, queries, 50, allowed))


def test_few_allowed_rows_are_all_compared_and_many_are_not() -> None:
    """10,000 of 100,000 compare as fast as the graph answers; half of a million do not."""
    assert dense_module.should_scan(10, 100_000, 96) and dense_module.should_scan(10_000, 100_000, 96)  # type: ignore[attr-defined]  # a private name, on purpose
    assert not dense_module.should_scan(50_000, 100_000, 96)  # type: ignore[attr-defined]  # a private name, on purpose
    assert not dense_module.should_scan(500_000, 1_000_000, 96)  # type: ignore[attr-defined]  # a private name, on purpose


def test_compressed_vectors_are_all_compared_where_lists_would_be_more_work() -> None:
    """Of ten million in 12,649 lists: up to a hundredth, of which a search would open half of all lists; not a tenth."""
    lists = (10_000_000, 64, 12_649)
    assert dense_module.should_scan_codes(10_000, *lists) and dense_module.should_scan_codes(100_000, *lists)  # type: ignore[attr-defined]  # a private name, on purpose
    assert not dense_module.should_scan_codes(1_000_000, *lists)  # type: ignore[attr-defined]  # a private name, on purpose
    assert not dense_module.should_scan_codes(5_000_000, *lists)  # type: ignore[attr-defined]  # a private name, on purpose


@pytest.mark.parametrize("kind", KINDS)
def test_no_allowed_row_finds_nothing(
    indexes: dict[IndexKind, DenseIndex], queries: Vectors, kind: IndexKind
) -> None:
    scores, rows = indexes[kind].search(queries, 10, allowed=RowMask(np.zeros(COUNT, np.bool_)))
    assert scores.shape == rows.shape == (len(queries), 0)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_more_hits_than_allowed_rows_gives_them_all(
    indexes: dict[IndexKind, DenseIndex], queries: Vectors, kind: IndexKind
) -> None:
    allowed = mask_of(0.004)
    rows = indexes[kind].search(queries, 500, allowed=allowed)[1]
    assert rows.shape == (len(queries), 12)
    assert (np.sort(rows, axis=1) == allowed.rows).all()


def test_where_the_graph_leads_past_the_allowed_rows_they_are_compared(
    vectors: Vectors, queries: Vectors
) -> None:
    index = build_dense(vectors, "hnsw")
    far = np.argsort(queries[0] @ vectors.T)[:40]  # nothing near the query is allowed
    mask = np.zeros(COUNT, np.bool_)
    mask[far] = True
    allowed = RowMask(mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_module, "should_scan", lambda *_: False)
        patch.setattr(dense_module, "widened_ef", lambda ef, *_: 10)
        rows = index.search(queries[:1], 40, SearchParams(ef_search=10), allowed)[1]
    np.testing.assert_array_equal(rows, brute_force(vectors, queries[:1], 40, allowed))


def test_a_mask_of_another_index_is_refused(indexes: dict[IndexKind, DenseIndex], queries: Vectors) -> None:
    with pytest.raises(MismatchError, match="found a mask of 2999 rows for an index of 3000 vectors"):
        indexes["flat"].search(queries, 10, allowed=RowMask(np.ones(2999, np.bool_)))


def test_selectors_outlive_the_call_that_made_them(
    indexes: dict[IndexKind, DenseIndex], vectors: Vectors, queries: Vectors
) -> None:
    """FAISS holds bare pointers into numpy's memory."""
    for seed in range(30):
        allowed = mask_of(0.01, seed)
        gc.collect()
        rows = indexes["hnsw"].search(queries, 10, allowed=allowed)[1]
        assert recall(rows, brute_force(vectors, queries, 10, allowed)) == 1.0


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("filtered", [False, True])
def test_ties_go_to_the_smaller_rank_also_at_the_end_of_the_list(kind: IndexKind, filtered: bool) -> None:
    vectors = np.zeros((400, 4), np.float32)
    vectors[:, 0] = 0.5
    vectors[[7, 300]] = [1.0, 0, 0, 0]
    query = np.array([[1.0, 0, 0, 0]], np.float32)
    order = np.random.default_rng(0).permutation(400).astype(np.uint32)
    mask = np.ones(400, np.bool_)
    mask[:200:3] = not filtered
    by_rank: Callable[[int], int] = lambda row: int(order[row])
    best, rest = {7, 300}, {int(row) for row in np.flatnonzero(mask)} - {7, 300}
    expected = sorted(best & set(np.flatnonzero(mask).tolist()), key=by_rank) + sorted(rest, key=by_rank)
    index, allowed = build_dense(vectors, kind), RowMask(mask) if filtered else None
    for k in (1, 2, 3, 10, 130, len(expected)):
        found = index.search(query, k, SearchParams(exact=True), allowed, order)[1][0]
        assert found.tolist() == expected[:k]


def test_pages_of_a_search_with_ties_never_overlap() -> None:
    generator = np.random.default_rng(0)
    vectors = np.repeat(generator.standard_normal((20, 8)), 10, axis=0).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = generator.permutation(200).astype(np.uint32)
    index, query = build_dense(vectors, "flat"), vectors[:1]
    allowed = RowMask(generator.random(200) < 0.7)
    whole = index.search(query, 200, allowed=allowed, order=order)[1][0].tolist()
    assert sorted(whole) == allowed.rows.tolist()
    for end in range(1, len(whole) + 1):
        assert index.search(query, end, allowed=allowed, order=order)[1][0].tolist() == whole[:end]
