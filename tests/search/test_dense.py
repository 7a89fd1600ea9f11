"""The dense index finds what comparing with every vector finds, exactly or nearly, kind by kind."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import BuildError, ConfigError, DeviceError, FormatError, MismatchError, QueryError
from glow.index import RowMask
from glow.index.vectors import (
    FLAT_MAX_VECTORS,
    KINDS,
    DenseIndex,
    IndexKind,
    SearchParams,
    build_dense,
    choose_kind,
    code_count,
    index_bytes,
    list_count,
    set_threads,
)
from glow.index.vectors import index as dense_module


def test_a_small_corpus_is_searched_exactly_and_a_large_one_by_a_graph() -> None:
    assert choose_kind(0, 384) == choose_kind(1, 384) == choose_kind(FLAT_MAX_VECTORS, 384) == "flat"
    assert [choose_kind(FLAT_MAX_VECTORS + 1, 384, device=on) for on in ("cpu", "cuda")] == ["hnsw", "flat"]


def test_vectors_are_compressed_where_memory_asks_for_it() -> None:
    assert choose_kind(1_000_000, 384, memory_bytes=4 << 30) == "hnsw"
    assert choose_kind(1_000_000, 384, memory_bytes=1 << 30) == "ivf-pq"
    assert choose_kind(10_000_000, 384, memory_bytes=4 << 30) == "ivf-pq"


@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000, 100_000, 10_000_000])
def test_every_list_has_vectors_to_train_on(count: int) -> None:
    lists = list_count(count)
    assert 1 <= lists <= max(4 * count**0.5, 1)
    assert lists == 1 or count / lists >= 64


@pytest.mark.parametrize(("dimensions", "codes"), [(384, 192), (32, 16), (30, 15), (7, 1), (1, 1)])
def test_codes_divide_the_dimensions(dimensions: int, codes: int) -> None:
    assert code_count(dimensions) == codes


Vectors = NDArray[np.float32]
Indexes = dict[IndexKind, DenseIndex]
EXACT = SearchParams(exact=True)


@pytest.fixture(scope="session")
def indexes(vectors: Vectors) -> Indexes:
    set_threads(1)
    return {kind: build_dense(vectors, kind) for kind in KINDS}


def brute_force(vectors: Vectors, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
    """The reference: every product, sorted by score and then by row."""
    scores = queries @ vectors.T
    order = np.lexsort((np.broadcast_to(np.arange(len(vectors)), scores.shape), -scores), axis=-1)[:, :k]
    return np.take_along_axis(scores, order, -1), order


@pytest.mark.parametrize("k", [1, 10, 250])
def test_flat_equals_brute_force(indexes: Indexes, vectors: Vectors, queries: Vectors, k: int) -> None:
    scores, rows = indexes["flat"].search(queries, k)
    expected_scores, expected_rows = brute_force(vectors, queries, k)
    np.testing.assert_allclose(scores, expected_scores, atol=2e-6)
    np.testing.assert_array_equal(rows, expected_rows)
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)


def test_an_exact_graph_equals_brute_force(indexes: Indexes, vectors: Vectors, queries: Vectors) -> None:
    _, rows = indexes["hnsw"].search(queries, 20, EXACT)
    np.testing.assert_array_equal(rows, brute_force(vectors, queries, 20)[1])


@pytest.mark.parametrize(("kind", "least"), [("hnsw", 0.98), ("ivf-pq", 0.95)])
def test_an_approximate_kind_finds_most_of_the_nearest(
    indexes: Indexes, vectors: Vectors, queries: Vectors, kind: IndexKind, least: float
) -> None:
    scores, rows = indexes[kind].search(queries, 10)
    expected = brute_force(vectors, queries, 10)[1]
    pairs = zip(rows, expected, strict=True)
    recall = np.mean([len(set(found) & set(wanted)) / 10 for found, wanted in pairs])
    assert recall >= least
    assert (np.diff(scores, axis=1) <= 0).all()
    exact = np.einsum("qd,qkd->qk", queries, vectors[rows])
    np.testing.assert_allclose(scores, exact, atol=5e-3 if kind == "ivf-pq" else 2e-6)  # 8 bits a number


def test_looking_harder_finds_more(indexes: Indexes, vectors: Vectors, queries: Vectors) -> None:
    expected = brute_force(vectors, queries, 10)[1]

    def found(kind: IndexKind, params: SearchParams) -> int:
        rows = indexes[kind].search(queries, 10, params)[1]
        return sum(len(set(row) & set(wanted)) for row, wanted in zip(rows, expected, strict=True))

    assert found("hnsw", SearchParams(ef_search=10)) < found("hnsw", SearchParams(ef_search=400))
    assert found("ivf-pq", SearchParams(nprobe=1)) < found("ivf-pq", SearchParams(nprobe=16))


@pytest.mark.parametrize("kind", KINDS)
def test_more_hits_than_vectors_gives_them_all(kind: IndexKind, vectors: Vectors) -> None:
    few = vectors[:300]
    scores, rows = build_dense(few, kind).search(few[:2], 1000, SearchParams(ef_search=600, nprobe=64))
    assert scores.shape == rows.shape == (2, 300)
    for row in rows:
        assert sorted(row[row >= 0]) == sorted(set(row[row >= 0]))
    assert (rows >= 0).mean() > 0.98


def test_where_too_few_are_found_row_minus_one_fills_up(indexes: Indexes, queries: Vectors) -> None:
    scores, rows = indexes["ivf-pq"].search(queries, 1000, SearchParams(nprobe=1))
    missing = rows == -1
    assert missing.any() and not missing[:, 0].any()
    assert (scores[missing] == -np.inf).all() and np.isfinite(scores[~missing]).all()
    assert (np.diff(missing.astype(int), axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_an_empty_index_finds_nothing(kind: IndexKind) -> None:
    index = build_dense(np.empty((0, 8), np.float32), kind)
    scores, rows = index.search(np.ones((3, 8), np.float32), 10)
    assert len(index) == 0 and scores.shape == rows.shape == (3, 0)


def test_no_query_gives_no_row(indexes: Indexes, vectors: Vectors) -> None:
    scores, rows = indexes["flat"].search(vectors[:0], 5)
    assert scores.shape == rows.shape == (0, 5)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_ties_go_to_the_smaller_row_also_at_the_end_of_the_list(kind: IndexKind) -> None:
    """Documents with the same text have the same vector: pages of a query must not overlap for that."""
    vectors = np.zeros((400, 4), np.float32)
    vectors[:, 0] = 0.5
    vectors[[7, 300]] = [1.0, 0, 0, 0]
    query = np.array([[1.0, 0, 0, 0]], np.float32)
    index = build_dense(vectors, kind)
    expected = [7, 300, *(row for row in range(400) if row not in (7, 300))]
    for k in (1, 2, 3, 10, 130, 400):
        assert index.search(query, k, EXACT)[1][0].tolist() == expected[:k]


def test_many_queries_at_once_find_what_each_finds_alone(indexes: Indexes, queries: Vectors) -> None:
    for index in indexes.values():
        together = index.search(queries, 10)[1]
        alone = np.concatenate([index.search(queries[row : row + 1], 10)[1] for row in range(len(queries))])
        np.testing.assert_array_equal(together, alone)


def test_threads_search_side_by_side(indexes: Indexes, queries: Vectors) -> None:
    for index in indexes.values():
        expected = index.search(queries, 10)[1]
        with ThreadPoolExecutor(8) as pool:
            for rows in pool.map(lambda _, found=index: found.search(queries, 10)[1], range(24)):
                np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_read_as_written(indexes: Indexes, queries: Vectors, tmp_path: Path, kind: IndexKind) -> None:
    indexes[kind].save(tmp_path / "vectors.faiss")
    found = DenseIndex.load(tmp_path / "vectors.faiss")
    assert (found.kind, len(found), found.dimensions, found.device) == (kind, 3000, 32, "cpu")
    for old, new in zip(indexes[kind].search(queries, 10), found.search(queries, 10), strict=True):
        np.testing.assert_array_equal(old, new)
    if kind == "hnsw":
        old, new = (index.search(queries, 10, EXACT)[1] for index in (indexes[kind], found))
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_an_index_is_near_its_file(indexes: Indexes, tmp_path: Path, kind: IndexKind) -> None:
    indexes[kind].save(tmp_path / "vectors.faiss")
    assert index_bytes(kind, 3000, 32) == pytest.approx((tmp_path / "vectors.faiss").stat().st_size, rel=0.05)


def test_the_same_vectors_give_the_same_file(vectors: Vectors, tmp_path: Path) -> None:
    set_threads(1)
    for kind in ("flat", "ivf-pq"):
        for name in ("a", "b"):
            build_dense(vectors[:1000], kind).save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes(), kind


def test_lists_are_trained_on_the_same_sample_every_time(tmp_path: Path) -> None:
    """Beyond 16,384 vectors only some train; they are drawn with a seed."""
    many = np.random.default_rng(0).standard_normal((17_000, 2)).astype(np.float32)
    for name in ("a", "b"):
        build_dense(many, "ivf-pq").save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_compressed_vectors_are_compared_as_they_are_stored(indexes: Indexes, queries: Vectors) -> None:
    index = indexes["ivf-pq"]
    stored = index.reader()(np.arange(len(index)))
    scores, rows = index.search(queries, 10, EXACT)
    np.testing.assert_array_equal(rows, brute_force(stored, queries, 10)[1])
    np.testing.assert_allclose(scores[0], index.score(queries[0], rows[0]), atol=2e-6)


def test_what_was_read_of_8_bits_is_stored_again_as_it_was(indexes: Indexes, vectors: Vectors) -> None:
    """Where ranges were learned from some of the vectors, others are cut off; that happens once."""
    first = build_dense(vectors[:2000], "ivf-pq")
    stored = first.reader()(np.arange(500, 2000))
    np.testing.assert_array_equal(build_dense(stored, "ivf-pq", like=first).reader()(np.arange(1500)), stored)
    assert (build_dense(stored, "ivf-pq").reader()(np.arange(1500)) != stored).any()


@pytest.mark.parametrize("count", [15, 0])
def test_too_few_vectors_to_train_are_refused_with_both_numbers(count: int) -> None:
    with pytest.raises(ConfigError, match=rf"at least \d+ vectors to train, found {count}"):
        build_dense(np.ones((count, 8), np.float32), "ivf-pq")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown index kind 'lsh'; known: auto, flat"):
        build_dense(np.ones((3, 8), np.float32), "lsh")  # type: ignore[arg-type]


@pytest.mark.parametrize("dimensions", [3, 7, 30, 33])
def test_any_number_of_dimensions_can_be_compressed(dimensions: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((300, dimensions)).astype(np.float32)
    assert len(build_dense(vectors, "ivf-pq")) == 300


@pytest.mark.skipif(hasattr(faiss, "StandardGpuResources"), reason="this faiss may see a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_that_is_not_there_is_refused(kind: IndexKind, vectors: Vectors, tmp_path: Path) -> None:
    build_dense(vectors[:300], kind).save(tmp_path / "vectors.faiss")
    with pytest.raises(DeviceError, match=r"sees no GPU.*docs/install\.md"):
        DenseIndex.load(tmp_path / "vectors.faiss", "cuda")


def test_a_truncated_or_foreign_file_is_refused_and_never_crashes(indexes: Indexes, tmp_path: Path) -> None:
    path = tmp_path / "vectors.faiss"
    for index in indexes.values():
        index.save(path)
        whole = path.read_bytes()
        for length in (0, 3, 40, len(whole) // 2):  # the last few bytes are the manifest's to guard
            path.write_bytes(whole[:length])
            with pytest.raises(FormatError, match=r"vectors\.faiss"):
                DenseIndex.load(path)
    path.write_bytes(b"not an index at all" * 100)
    with pytest.raises(FormatError, match=r"vectors\.faiss"):
        DenseIndex.load(path)


FOREIGN = (
    faiss.IndexFlatL2(8),
    faiss.IndexLSH(8, 16),
    faiss.IndexIVFPQ(faiss.IndexFlatIP(8), 8, 1, 2, 8, faiss.METRIC_INNER_PRODUCT),  # `ivf-pq` of GLOW 0.1
    faiss.IndexRefineFlat(faiss.IndexFlatIP(8)),
)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_an_index_of_another_metric_or_kind_is_refused(foreign: faiss.Index, tmp_path: Path) -> None:
    faiss.write_index(foreign, str(tmp_path / "vectors.faiss"))
    with pytest.raises(FormatError, match="this GLOW does not write; rebuild"):
        DenseIndex.load(tmp_path / "vectors.faiss")


def test_codes_and_vectors_of_other_numbers_are_refused(vectors: Vectors, tmp_path: Path) -> None:
    built = build_dense(vectors[:300], "ivf-pq")
    faiss.downcast_index(built._index.refine_index).add(vectors[300:301])
    built.save(tmp_path / "vectors.faiss")
    with pytest.raises(FormatError, match="this GLOW does not write"):
        DenseIndex.load(tmp_path / "vectors.faiss")


def test_a_file_that_cannot_be_written_says_so(indexes: Indexes, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cannot write vectors\.faiss"):
        indexes["flat"].save(tmp_path / "missing" / "vectors.faiss")


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_scores_of_given_rows_are_their_cosines(
    kind: IndexKind, indexes: Indexes, vectors: Vectors, queries: Vectors
) -> None:
    rows = np.array([7, 2999, 0, 7])
    assert indexes[kind].score(queries[0], rows) == pytest.approx(vectors[rows] @ queries[0], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_one_score_whatever_stands_beside_it_and_however_it_was_found(
    kind: IndexKind, indexes: Indexes, queries: Vectors
) -> None:
    index, generator = indexes[kind], np.random.default_rng(5)
    for query in queries[:10]:
        every = index.score(query, np.arange(3000))
        for share in (0.9, 0.3, 0.01):
            allowed = RowMask(generator.random(3000) < share)
            for params in (None, EXACT):
                scores, rows = index.search(query[None], 50, params, allowed)
                np.testing.assert_array_equal(scores[0], every[rows[0]])
        one = np.array([generator.integers(3000)])
        assert index.score(query, one)[0] == every[one[0]]


def test_an_index_on_a_gpu_cannot_tell_scores(queries: Vectors) -> None:
    # What FAISS has on a GPU answers no such question; nothing is asked of it here.
    index = DenseIndex(build_dense(queries, "flat")._index, "flat", "cuda")
    assert not index.has_vectors
    with pytest.raises(QueryError, match="cuda cannot score"):
        index.score(queries[0], np.array([1]))


COUNT = 3000
SHARES = (1 / COUNT, 0.003, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9, 0.99, 1.0)


def mask_of(share: float, seed: int = 0) -> RowMask:
    mask = np.zeros(COUNT, np.bool_)
    mask[np.random.default_rng(seed).choice(COUNT, max(round(share * COUNT), 1), replace=False)] = True
    return RowMask(mask)


def brute_force_among(vectors: Vectors, queries: Vectors, k: int, allowed: RowMask) -> NDArray[np.int64]:
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
    indexes: Indexes, vectors: Vectors, queries: Vectors, kind: IndexKind, share: float, way: None
) -> None:
    allowed = mask_of(share)
    scores, rows = indexes[kind].search(queries, 10, allowed=allowed)
    expected = brute_force_among(vectors, queries, 10, allowed)
    assert rows.shape == scores.shape == expected.shape
    assert allowed.mask[rows[rows >= 0]].all()
    assert (rows >= 0).all() or kind.startswith("ivf")
    assert recall(rows, expected) >= {"flat": 1.0, "hnsw": 0.97, "ivf-pq": 0.9}[kind]
    assert (np.diff(scores, axis=1) <= 0).all()
    exact = np.einsum("qd,qkd->qk", queries, vectors[rows])
    np.testing.assert_allclose(scores, exact, atol=5e-3 if kind == "ivf-pq" else 2e-6)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("share", [0.003, 0.5])
def test_an_exact_search_among_some_rows_equals_brute_force(
    indexes: Indexes, vectors: Vectors, queries: Vectors, kind: IndexKind, share: float
) -> None:
    allowed = mask_of(share)
    rows = indexes[kind].search(queries, 50, SearchParams(exact=True), allowed)[1]
    np.testing.assert_array_equal(rows, brute_force_among(vectors, queries, 50, allowed))


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
def test_no_allowed_row_finds_nothing(indexes: Indexes, queries: Vectors, kind: IndexKind) -> None:
    scores, rows = indexes[kind].search(queries, 10, allowed=RowMask(np.zeros(COUNT, np.bool_)))
    assert scores.shape == rows.shape == (len(queries), 0)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_more_hits_than_allowed_rows_gives_all(indexes: Indexes, queries: Vectors, kind: IndexKind) -> None:
    allowed = mask_of(0.004)
    rows = indexes[kind].search(queries, 500, allowed=allowed)[1]
    assert rows.shape == (len(queries), 12)
    assert (np.sort(rows, axis=1) == allowed.rows).all()


def test_where_a_graph_leads_past_allowed_rows_they_are_compared(vectors: Vectors, queries: Vectors) -> None:
    index = build_dense(vectors, "hnsw")
    far = np.argsort(queries[0] @ vectors.T)[:40]  # nothing near the query is allowed
    mask = np.zeros(COUNT, np.bool_)
    mask[far] = True
    allowed = RowMask(mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_module, "should_scan", lambda *_: False)
        patch.setattr(dense_module, "widened_ef", lambda ef, *_: 10)
        rows = index.search(queries[:1], 40, SearchParams(ef_search=10), allowed)[1]
    np.testing.assert_array_equal(rows, brute_force_among(vectors, queries[:1], 40, allowed))


def test_a_mask_of_another_index_is_refused(indexes: Indexes, queries: Vectors) -> None:
    with pytest.raises(MismatchError, match="found a mask of 2999 rows for an index of 3000 vectors"):
        indexes["flat"].search(queries, 10, allowed=RowMask(np.ones(2999, np.bool_)))


def test_selectors_outlive_their_call(indexes: Indexes, vectors: Vectors, queries: Vectors) -> None:
    """FAISS holds bare pointers into numpy's memory."""
    for seed in range(30):
        allowed = mask_of(0.01, seed)
        gc.collect()
        rows = indexes["hnsw"].search(queries, 10, allowed=allowed)[1]
        assert recall(rows, brute_force_among(vectors, queries, 10, allowed)) == 1.0


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
        assert index.search(query, k, SearchParams(exact=True), allowed, order)[1][0].tolist() == expected[:k]


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
