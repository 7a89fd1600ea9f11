"""Vectors as a component: kinds of FAISS index, built, merged, joined and opened."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import ConfigError, DeviceError, MismatchError, StoreError
from glow.index import DELTA, BuildInputs, MergeSource, RowLayout, Rows, Segment, Segments
from glow.index.ranking import RowMask
from glow.index.vectors import (
    KINDS,
    VECTORS,
    DenseIndex,
    IndexKind,
    KeptVectors,
    SearchParams,
    VectorOptions,
    VectorRules,
    build_dense,
)

OLD, NEW, DIMENSIONS = 600, 80, 16
PASSAGES_OF_45 = np.array([*range(0, 50, 5), 45], np.uint32)
"""First passage of each of ten documents."""
Array = NDArray[np.float32]


@pytest.fixture(scope="module")
def vectors() -> Array:
    generator = np.random.default_rng(0)
    found = (
        generator.standard_normal((30, DIMENSIONS))[generator.integers(0, 30, OLD + NEW)]
        + generator.standard_normal((OLD + NEW, DIMENSIONS)) * 0.5
    )
    found[40:46] = found[OLD + 3] = found[40]  # documents with the same text, in base and delta
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="module")
def gone() -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(1).choice(OLD, 60, replace=False))


def made(folder: Path, count: int, below: str = "", **parameters: Any) -> Segment:
    """A segment in the making."""
    folder.mkdir(parents=True, exist_ok=True)
    return Segment("v1", folder, folder, below, {}, parameters, None, Rows(count))


def opened(segment: Segment) -> Segment:
    return segment.with_reader(VECTORS, VECTORS.open(segment))


def built(folder: Path, vectors: Array, rules: VectorRules, below: str = "", **parameters: Any) -> Segment:
    segment = made(folder, len(vectors), below, **parameters)
    encoded = SimpleNamespace(vectors=lambda: vectors)
    VECTORS.build(SimpleNamespace(made=segment, encoded=encoded), rules)
    return opened(segment)


def rules_of(kind: Any, **more: Any) -> VectorRules:
    return VectorRules(index=kind, dimensions=DIMENSIONS, **more)


def joined(base: Segment, delta: Segment, gone: NDArray[np.int64]) -> Segments[Any]:
    order = np.random.default_rng(2).permutation(OLD + NEW).astype(np.uint32)
    rows = RowLayout([base.rows.documents, delta.rows.documents], gone)
    return Segments("v1", (base[VECTORS], delta[VECTORS]), rows, rows, order)


def kept(base: Segment, delta: Segment, gone: NDArray[np.int64]) -> list[MergeSource]:
    live = np.ones(base.rows.documents, np.bool_)
    live[gone] = False
    return [MergeSource(base, live), MergeSource(delta, np.ones(delta.rows.documents, np.bool_))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_compacted_index_is_what_a_build_makes_of_the_vectors_that_it_stores(
    kind: IndexKind, vectors: Array, gone: NDArray[np.int64], tmp_path: Path
) -> None:
    base = built(tmp_path / "base", vectors[:OLD], rules_of(kind), index=kind)
    plain = tmp_path / "plain.faiss"
    build_dense(vectors[:OLD], kind).save(plain)
    assert (base.folder / "vectors.faiss").read_bytes() == plain.read_bytes()
    delta = built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA)
    left = np.setdiff1d(np.arange(OLD), gone)
    for is_delta in (False, True):
        target = made(tmp_path / f"made-{is_delta}", OLD - len(gone) + NEW, DELTA if is_delta else "")
        rules = VECTORS.rules_of(base, delta=is_delta)
        assert rules is not None
        VECTORS.merge(kept(base, delta, gone), rules, target)
        stored = np.concatenate([base[VECTORS].vectors(left), vectors[OLD:]])
        own = base[VECTORS]
        assert isinstance(own, DenseIndex)
        build_dense(stored, "flat" if is_delta else kind, like=own).save(plain)
        assert (target.folder / "vectors.faiss").read_bytes() == plain.read_bytes()
        assert opened(target)[VECTORS].kind == ("flat" if is_delta else kind)


def test_what_is_kept_is_read_by_blocks_and_by_rows(vectors: Array) -> None:
    rows = [np.array([3, 5, 9]), np.array([], np.int64), np.arange(20)]
    array = KeptVectors([(lambda wanted: vectors[wanted], each) for each in rows], DIMENSIONS)
    whole = vectors[np.concatenate(rows)]
    assert array.shape == whole.shape
    for wanted in (slice(0, 2), slice(1, 50), slice(5, 5)):
        np.testing.assert_array_equal(array[wanted], whole[wanted])
    places = np.array([[22, 0], [2, 3]])
    np.testing.assert_array_equal(array[places], whole[places])


@pytest.mark.parametrize("kind", KINDS)
def test_base_and_delta_are_searched_as_one(
    kind: IndexKind, vectors: Array, gone: NDArray[np.int64], tmp_path: Path
) -> None:
    base = built(tmp_path / "base", vectors[:OLD], rules_of(kind))
    both = joined(base, built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA), gone)
    view = VECTORS.reader(both)
    alive = np.setdiff1d(np.arange(OLD + NEW), gone)
    stored = np.concatenate([base[VECTORS].vectors(np.arange(OLD)), vectors[OLD:]])
    mask = np.random.default_rng(3).random(OLD + NEW) < 0.4
    for allowed, rows in ((None, alive), (RowMask(mask), np.intersect1d(alive, np.flatnonzero(mask)))):
        for query in vectors[[2, 40, OLD + 5]]:
            scores = np.einsum("ij,j->i", stored[rows], query)
            best = np.lexsort((both.order[rows], -scores))[:9]
            found = view.search(query[None], 9, SearchParams(exact=True), allowed, both.order)
            np.testing.assert_array_equal(found[0][0], scores[best])
            np.testing.assert_array_equal(found[1][0], rows[best])
    mixed = np.array([OLD + 2, 7, OLD, 7, 0])
    np.testing.assert_array_equal(view.vectors(mixed), stored[mixed])
    expected = np.einsum("ij,j->i", stored[mixed], vectors[2])
    np.testing.assert_array_equal(view.score(vectors[2], mixed), expected)
    assert view.vectors(mixed[:0]).shape == (0, DIMENSIONS)
    assert (view.kind, len(view), view.has_vectors) == (kind, OLD + NEW, True)


@pytest.mark.parametrize(
    ("below", "kind", "rows", "said"),
    [
        ("", "flat", Rows(49), "index v1: 50 vectors, 49 stored documents, 49 in the manifest; rebuild the index"),
        ("", "flat", Rows(10, PASSAGES_OF_45), "50 vectors, 10 stored documents, 10 and 45 passages in the manifest"),
        (DELTA, "flat", Rows(49), r"delta/ holds 50 vectors \(flat\), delta/delta.json says 49 documents and 49 vectors"),
        (DELTA, "hnsw", Rows(50), r"holds 50 vectors \(hnsw\), delta/delta.json says .* \(flat\)"),
    ],
)  # fmt: skip
def test_other_rows_than_the_segment_has_are_refused(
    below: str, kind: IndexKind, rows: Rows, said: str, vectors: Array, tmp_path: Path
) -> None:
    segment = replace(built(tmp_path, vectors[:50], rules_of(kind)), below=below)
    with pytest.raises(MismatchError, match=said):
        VECTORS.open(replace(segment, rows=rows))
    if kind == "flat":
        cut = Rows(10, np.arange(0, 55, 5, np.uint32))
        assert len(VECTORS.open(replace(segment, rows=cut))) == 50


def test_what_does_not_belong_together_is_not_joined(vectors: Array, tmp_path: Path) -> None:
    base = built(tmp_path / "base", vectors[:OLD], rules_of("flat"))
    short = np.ascontiguousarray(vectors[OLD:, :8])
    other = built(tmp_path / "other", short, VectorRules(index="flat", dimensions=8), DELTA)
    nobody = np.empty(0, np.int64)
    told = "vectors of 8 dimensions in its delta, 16 in its base; roll back"
    with pytest.raises(MismatchError, match=told):
        VECTORS.reader(joined(base, other, nobody))
    delta = built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA)
    base[VECTORS].device = "cuda"
    with pytest.raises(DeviceError, match="index v1 has a delta, which cannot be searched on a GPU"):
        VECTORS.reader(joined(base, delta, nobody))
    assert VECTORS.serves(base[VECTORS])["like"].startswith("this index is on a GPU")
    assert VECTORS.serves(delta[VECTORS]) == {"dense": "", "like": ""}


def test_few_vectors_are_refused_by_a_build_and_flat_in_a_compaction(vectors: Array, tmp_path: Path) -> None:
    rules = rules_of("ivf-pq")
    with pytest.raises(ConfigError, match="needs at least 16 vectors to train, found 9"):
        VECTORS.check_rows(Rows(9), rules)
    VECTORS.check_rows(Rows(9, np.arange(0, 20, 2, np.uint32)), rules)
    base = built(tmp_path / "base", vectors[:30], rules, index="ivf-pq", memory_mb=100)
    compacted = VECTORS.rules_of(base, delta=False)
    assert compacted == rules_of("ivf-pq", memory_mb=100, falls_back=True)
    assert compacted.kind(9) == "flat" and compacted.kind(16) == "ivf-pq"
    target = made(tmp_path / "made", 9)
    VECTORS.merge([MergeSource(base, np.arange(30) < 9)], compacted, target)
    report = VECTORS.report(opened(target), compacted, {})["index"]
    assert (report["kind"], report["why"][:18]) == ("flat", "9 documents are to")
    assert VECTORS.rules_of(made(tmp_path / "none", 3), delta=True) is None


def test_auto_goes_by_the_number_of_vectors() -> None:
    asked = SimpleNamespace(dimensions=DIMENSIONS, device="cpu")
    rules = VECTORS.rules(VectorOptions(memory_mb=2), cast(BuildInputs, asked))
    assert [rules.kind(count) for count in (4_000, 5_000, 10_000)] == ["flat", "hnsw", "ivf-pq"]
    whole, memory = rules.describe("ivf-pq", 10_000, "passages", 0)["why"].split(", and with its ")
    assert whole == "10000 passages are too many to compare with every one"
    assert memory == "vectors whole the index of about 3 MiB does not fit into --memory-mb 2"
    with pytest.raises(StoreError):
        VECTORS.rules(VectorOptions(store="milvus://127.0.0.1:1"), cast(BuildInputs, asked))
