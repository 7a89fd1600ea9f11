"""The dense index finds what comparing with every vector finds, exactly or nearly, kind by kind."""

import gc
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
from tests.search.conftest import COUNT, Vectors

Rows = NDArray[np.int64]
Indexes = dict[IndexKind, DenseIndex]
EXACT = SearchParams(exact=True)
ROUNDING: dict[IndexKind, float] = {"flat": 2e-6, "hnsw": 2e-6, "ivf-pq": 5e-3}
"""How far scores may be from those of the vectors: `ivf-pq` stores 8 bits a number."""
HAS_GPU = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


def test_a_small_corpus_is_searched_exactly_a_large_one_by_a_graph_and_compressed_where_memory_asks() -> None:
    assert choose_kind(0, 384) == choose_kind(1, 384) == choose_kind(FLAT_MAX_VECTORS, 384) == "flat"
    assert [choose_kind(FLAT_MAX_VECTORS + 1, 384, device=on) for on in ("cpu", "cuda")] == ["hnsw", "flat"]
    large = ((1_000_000, 4096), (1_000_000, 512), (10_000_000, 4096))
    kinds = [choose_kind(count, 384, memory_bytes=mib << 20) for count, mib in large]
    assert kinds == ["hnsw", "ivf-pq", "ivf-pq"]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000, 100_000, 10_000_000])
def test_every_list_has_vectors_to_train_on(count: int) -> None:
    lists = list_count(count)
    assert 1 <= lists <= max(4 * count**0.5, 1)
    assert lists == 1 or count / lists >= 64


@pytest.mark.parametrize(("dimensions", "codes"), [(384, 192), (32, 16), (30, 15), (7, 1), (1, 1)])
def test_codes_divide_the_dimensions(dimensions: int, codes: int) -> None:
    assert code_count(dimensions) == codes
    vectors = np.random.default_rng(0).standard_normal((300, dimensions)).astype(np.float32)
    assert len(build_dense(vectors, "ivf-pq")) == 300


@pytest.fixture(scope="session")
def indexes(vectors: Vectors) -> Indexes:
    set_threads(1)
    return {kind: build_dense(vectors, kind) for kind in KINDS}


def mask_of(share: float, seed: int = 0) -> RowMask:
    mask = np.zeros(COUNT, np.bool_)
    mask[np.random.default_rng(seed).choice(COUNT, max(round(share * COUNT), 1), replace=False)] = True
    return RowMask(mask)


def brute_force(vectors: Vectors, queries: Vectors, k: int, allowed: RowMask | None = None) -> Rows:
    """The reference: every product, sorted by score and then by row."""
    scores = queries @ vectors.T
    if allowed is not None:
        scores = np.where(allowed.mask, scores, -np.inf)
        k = min(k, allowed.count)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def recall(found: Rows, expected: Rows) -> float:
    shares = [len(set(row) & set(wanted)) / len(wanted) for row, wanted in zip(found, expected, strict=True)]
    return float(np.mean(shares))


@pytest.fixture(params=[None, 0], ids=["as it decides", "always by the graph"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3,000 vectors the graph is hardly worth its while, so it is also searched wherever it can be."""
    if request.param == 0:
        monkeypatch.setattr(dense_module, "should_scan", lambda *_: False)
        monkeypatch.setattr(dense_module, "should_scan_codes", lambda *_: False)


@pytest.mark.parametrize("share", [None, 1 / COUNT, 0.003, 0.05, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_the_nearest_allowed_rows(
    indexes: Indexes, vectors: Vectors, queries: Vectors, kind: IndexKind, share: float | None, way: None
) -> None:
    allowed = None if share is None else mask_of(share)
    scores, rows = indexes[kind].search(queries, 10, allowed=allowed)
    expected = brute_force(vectors, queries, 10, allowed)
    assert rows.shape == scores.shape == expected.shape
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)
    assert allowed is None or allowed.mask[rows[rows >= 0]].all()
    assert (rows >= 0).all() or kind == "ivf-pq"
    assert recall(rows, expected) >= {"flat": 1.0, "hnsw": 0.97, "ivf-pq": 0.9}[kind]
    assert (np.diff(scores, axis=1) <= 0).all()
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, vectors[rows]), atol=ROUNDING[kind])


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("share", [None, 0.003, 0.5])
def test_an_exact_search_equals_brute_force(
    indexes: Indexes, vectors: Vectors, queries: Vectors, kind: IndexKind, share: float | None
) -> None:
    allowed = None if share is None else mask_of(share)
    for k in (1, 250):
        rows = indexes[kind].search(queries, k, EXACT, allowed)[1]
        np.testing.assert_array_equal(rows, brute_force(vectors, queries, k, allowed))


def test_looking_harder_finds_more(indexes: Indexes, vectors: Vectors, queries: Vectors) -> None:
    expected = brute_force(vectors, queries, 10)

    def found(kind: IndexKind, params: SearchParams) -> float:
        return recall(indexes[kind].search(queries, 10, params)[1], expected)

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
def test_of_nothing_nothing_is_found(kind: IndexKind, indexes: Indexes, queries: Vectors) -> None:
    empty = build_dense(np.empty((0, 8), np.float32), kind)
    assert empty.search(np.ones((3, 8), np.float32), 10)[1].shape == (3, 0)
    assert indexes[kind].search(queries[:0], 5)[1].shape == (0, 5)
    nobody = RowMask(np.zeros(COUNT, np.bool_))
    assert indexes[kind].search(queries, 10, allowed=nobody)[1].shape == (len(queries), 0)
    few = mask_of(0.004)
    assert (np.sort(indexes[kind].search(queries, 500, allowed=few)[1], axis=1) == few.rows).all()


def test_where_a_graph_leads_past_allowed_rows_they_are_compared(
    indexes: Indexes, vectors: Vectors, queries: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = np.zeros(COUNT, np.bool_)
    mask[np.argsort(queries[0] @ vectors.T)[:40]] = True  # nothing near the query is allowed
    monkeypatch.setattr(dense_module, "should_scan", lambda *_: False)
    monkeypatch.setattr(dense_module, "widened_ef", lambda ef, *_: 10)
    rows = indexes["hnsw"].search(queries[:1], 40, SearchParams(ef_search=10), RowMask(mask))[1]
    np.testing.assert_array_equal(rows, brute_force(vectors, queries[:1], 40, RowMask(mask)))


def test_few_allowed_rows_are_all_compared_and_many_are_not() -> None:
    """10,000 of 100,000 compare as fast as the graph answers; half of a million do not.

    Of ten million in 12,649 lists: up to a hundredth, of which a search would open half of all lists; not a tenth.
    """
    scans = ((10, 100_000), (10_000, 100_000), (50_000, 100_000), (500_000, 1_000_000))
    assert [dense_module.should_scan(*each, 96) for each in scans] == [True, True, False, False]  # type: ignore[attr-defined]  # a private name, on purpose
    lists = (10_000_000, 64, 12_649)
    codes = [dense_module.should_scan_codes(10**power, *lists) for power in (4, 5, 6)]  # type: ignore[attr-defined]  # as above
    assert codes == [True, True, False]


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("ranked", [False, True])
def test_ties_go_to_the_smaller_rank_also_at_the_end_of_the_list(
    kind: IndexKind, filtered: bool, ranked: bool
) -> None:
    """Documents with the same text have the same vector: pages of a query must not overlap for that."""
    vectors = np.zeros((400, 4), np.float32)
    vectors[:, 0] = 0.5
    vectors[[7, 300]] = query = np.array([[1.0, 0, 0, 0]], np.float32)
    order = np.random.default_rng(0).permutation(400).astype(np.uint32) if ranked else np.arange(400)
    mask = np.ones(400, np.bool_)
    mask[:200:3] = not filtered
    expected = sorted(np.flatnonzero(mask).tolist(), key=lambda row: (row not in (7, 300), order[row]))
    index, allowed = build_dense(vectors, kind), RowMask(mask) if filtered else None
    for k in (1, 2, 3, 10, 130, len(expected)):
        found = index.search(query, k, EXACT, allowed, order if ranked else None)[1][0]
        assert found.tolist() == expected[:k]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_one_score_whatever_stands_beside_it_and_however_it_was_found(
    kind: IndexKind, indexes: Indexes, vectors: Vectors, queries: Vectors
) -> None:
    index, generator = indexes[kind], np.random.default_rng(5)
    for query in queries[:10]:
        every = index.score(query, np.arange(COUNT))
        np.testing.assert_allclose(every, vectors @ query, atol=2 * ROUNDING[kind])
        for share in (0.9, 0.3, 0.01):
            allowed = RowMask(generator.random(COUNT) < share)
            for params in (None, EXACT):
                scores, rows = index.search(query[None], 50, params, allowed)
                np.testing.assert_array_equal(scores[0], every[rows[0]])
        some = np.array([7, generator.integers(COUNT), 0, 7])
        np.testing.assert_array_equal(index.score(query, some), every[some])


def test_compressed_vectors_are_compared_as_they_are_stored(indexes: Indexes, queries: Vectors) -> None:
    index = indexes["ivf-pq"]
    stored = index.vectors(np.arange(len(index)))
    np.testing.assert_array_equal(index.search(queries, 10, EXACT)[1], brute_force(stored, queries, 10))


def test_what_was_read_of_8_bits_is_stored_again_as_it_was(indexes: Indexes, vectors: Vectors) -> None:
    """Where ranges were learned from some of the vectors, others are cut off; that happens once."""
    first = build_dense(vectors[:2000], "ivf-pq")
    stored = first.vectors(np.arange(500, 2000))
    np.testing.assert_array_equal(build_dense(stored, "ivf-pq", like=first).vectors(np.arange(1500)), stored)
    assert (build_dense(stored, "ivf-pq").vectors(np.arange(1500)) != stored).any()


def test_threads_search_side_by_side(indexes: Indexes, queries: Vectors) -> None:
    for index in indexes.values():
        expected = index.search(queries, 10)[1]
        with ThreadPoolExecutor(8) as pool:
            for rows in pool.map(lambda _, found=index: found.search(queries, 10)[1], range(24)):
                np.testing.assert_array_equal(rows, expected)


def test_selectors_outlive_their_call(indexes: Indexes, vectors: Vectors, queries: Vectors) -> None:
    """FAISS holds bare pointers into numpy's memory."""
    for seed in range(30):
        allowed = mask_of(0.01, seed)
        gc.collect(1)  # what the last call left; a whole collection takes a second
        rows = indexes["hnsw"].search(queries, 10, allowed=allowed)[1]
        assert recall(rows, brute_force(vectors, queries, 10, allowed)) == 1.0


def test_a_mask_of_another_index_is_refused(indexes: Indexes, queries: Vectors) -> None:
    with pytest.raises(MismatchError, match="found a mask of 2999 rows for an index of 3000 vectors"):
        indexes["flat"].search(queries, 10, allowed=RowMask(np.ones(2999, np.bool_)))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_read_as_written_and_as_large_as_estimated(
    indexes: Indexes, queries: Vectors, tmp_path: Path, kind: IndexKind
) -> None:
    path = tmp_path / "vectors.faiss"
    indexes[kind].save(path)
    assert index_bytes(kind, 3000, 32) == pytest.approx(path.stat().st_size, rel=0.05)
    found = DenseIndex.load(path)
    assert (found.kind, len(found), found.dimensions, found.device) == (kind, 3000, 32, "cpu")
    for params in (None, EXACT):
        answers = [index.search(queries, 10, params) for index in (indexes[kind], found)]
        for old, new in zip(*answers, strict=True):
            np.testing.assert_array_equal(old, new)


def test_the_same_vectors_give_the_same_file(vectors: Vectors, tmp_path: Path) -> None:
    """Beyond 16,384 vectors only some train; they are drawn with a seed."""
    set_threads(1)
    many = np.random.default_rng(0).standard_normal((17_000, 2)).astype(np.float32)
    for kind, rows in (("flat", vectors[:1000]), ("ivf-pq", vectors[:1000]), ("ivf-pq", many)):
        for name in ("a", "b"):
            build_dense(rows, kind).save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes(), kind


@pytest.mark.parametrize(
    ("count", "kind", "said"),
    [
        (15, "ivf-pq", r"at least \d+ vectors to train, found 15"),
        (0, "ivf-pq", r"at least \d+ vectors to train, found 0"),
        (3, "lsh", "unknown index kind 'lsh'; known: auto, flat"),
    ],
)
def test_what_cannot_be_built_is_refused(count: int, kind: IndexKind, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_dense(np.ones((count, 8), np.float32), kind)


def test_a_truncated_or_foreign_file_is_refused_and_never_crashes(indexes: Indexes, tmp_path: Path) -> None:
    path = tmp_path / "vectors.faiss"
    for index in indexes.values():
        index.save(path)
        whole = path.read_bytes()
        for length in (3, 40, len(whole) // 2):  # the last few bytes are the manifest's to guard
            path.write_bytes(whole[:length])
            with pytest.raises(FormatError, match=r"vectors\.faiss"):
                DenseIndex.load(path)


FOREIGN = (
    faiss.IndexFlatL2(8),
    faiss.IndexLSH(8, 16),
    faiss.IndexIVFPQ(faiss.IndexFlatIP(8), 8, 1, 2, 8, faiss.METRIC_INNER_PRODUCT),
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


def test_an_index_on_a_gpu_cannot_tell_scores(queries: Vectors) -> None:
    # What FAISS has on a GPU answers no such question; nothing is asked of it here.
    index = DenseIndex(build_dense(queries, "flat")._index, "flat", "cuda")
    assert not index.has_vectors
    with pytest.raises(QueryError, match="cuda cannot score"):
        index.score(queries[0], np.array([1]))


@pytest.mark.skipif(hasattr(faiss, "StandardGpuResources"), reason="this faiss may see a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_that_is_not_there_is_refused(kind: IndexKind, vectors: Vectors, tmp_path: Path) -> None:
    build_dense(vectors[:300], kind).save(tmp_path / "vectors.faiss")
    with pytest.raises(DeviceError, match=r"sees no GPU.*docs/install\.md"):
        DenseIndex.load(tmp_path / "vectors.faiss", "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="this faiss sees no GPU")
def test_a_flat_index_finds_the_same_on_a_gpu_and_others_are_refused(
    indexes: Indexes, queries: Vectors, tmp_path: Path
) -> None:
    indexes["flat"].save(tmp_path / "flat")
    on_gpu, on_cpu = (DenseIndex.load(tmp_path / "flat", device) for device in ("cuda", "cpu"))
    assert (on_gpu.device, on_cpu.device, on_gpu.kind, on_cpu.kind) == ("cuda", "cpu", "flat", "flat")
    rows, expected = (index.search(queries, 10, EXACT)[1] for index in (on_gpu, on_cpu))
    assert (rows == expected).mean() > 0.99  # the GPU adds in another order
    for kind in ("hnsw", "ivf-pq"):
        indexes[kind].save(tmp_path / kind)
        with pytest.raises(DeviceError, match=f"{kind} index cannot run on a GPU"):
            DenseIndex.load(tmp_path / kind, "cuda")
