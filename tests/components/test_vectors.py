"""Vectors as a component: kinds of FAISS index, built, merged, joined and opened."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import ConfigError, DeviceError, MismatchError, StoreError
from glow.index import (
    DELTA,
    Asked,
    MergeSource,
    Rows,
)
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
from tests.components.made_vectors import (
    DIMENSIONS,
    NEW,
    OLD,
    Array,
    built,
    joined,
    kept,
    made,
    opened,
    rules_of,
    verified,
)


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
    delta = built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA)
    both = joined(base, delta, gone)
    view = VECTORS.join(both)
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
    np.testing.assert_array_equal(
        view.score(vectors[2], mixed), np.einsum("ij,j->i", stored[mixed], vectors[2])
    )
    assert view.vectors(mixed[:0]).shape == (0, DIMENSIONS)
    assert (view.kind, len(view), view.has_vectors) == (kind, OLD + NEW, True)


@pytest.mark.parametrize("below", ["", DELTA])
def test_other_rows_than_the_segment_has_are_refused(below: str, vectors: Array, tmp_path: Path) -> None:
    segment = verified(built(tmp_path, vectors[:50], rules_of("flat"), below))
    VECTORS.open(segment)
    said = {
        "": "index v1: 50 vectors, 49 stored documents, 49 in the manifest; rebuild the index",
        DELTA: r"delta/ holds 50 vectors \(flat\), delta/delta.json says 49 documents and 49 vectors \(flat\); roll back",
    }
    with pytest.raises(MismatchError, match=said[below]):
        VECTORS.open(replace(segment, rows=Rows(49)))
    cut = Rows(10, np.arange(0, 55, 5, np.uint32))
    assert len(VECTORS.open(replace(segment, rows=cut))) == 50
    if not below:
        with pytest.raises(
            MismatchError, match="50 vectors, 10 stored documents, 10 and 45 passages in the manifest"
        ):
            VECTORS.open(replace(segment, rows=Rows(10, np.append(cut.first[:-1], np.uint32(45)))))  # type: ignore[index]  # it is there
    with pytest.raises(MismatchError, match=f"manifest lacks {below}vectors.faiss"):
        VECTORS.open(replace(segment, files={}))


def test_a_delta_is_flat(vectors: Array, tmp_path: Path) -> None:
    segment = built(tmp_path, vectors[:50], rules_of("hnsw"))
    with pytest.raises(MismatchError, match=r"holds 50 vectors \(hnsw\), delta/delta.json says .* \(flat\)"):
        VECTORS.open(verified(replace(segment, below=DELTA)))


def test_what_does_not_belong_together_is_not_joined(vectors: Array, tmp_path: Path) -> None:
    base = built(tmp_path / "base", vectors[:OLD], rules_of("flat"))
    short = np.ascontiguousarray(vectors[OLD:, :8])
    other = built(tmp_path / "other", short, VectorRules(index="flat", dimensions=8), DELTA)
    nobody = np.empty(0, np.int64)
    with pytest.raises(
        MismatchError, match="vectors of 8 dimensions in its delta, 16 in its base; roll back"
    ):
        VECTORS.join(joined(base, other, nobody))
    delta = built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA)
    base[VECTORS].device = "cuda"
    with pytest.raises(DeviceError, match="index v1 has a delta, which cannot be searched on a GPU"):
        VECTORS.join(joined(base, delta, nobody))
    assert VECTORS.serves(base[VECTORS])["like"].startswith("this index is on a GPU")
    assert VECTORS.serves(delta[VECTORS]) == {"dense": "", "like": ""}


def test_too_few_vectors_are_refused_in_a_build_and_made_flat_in_a_compaction(
    vectors: Array, tmp_path: Path
) -> None:
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


def test_auto_goes_by_the_number_of_vectors(vectors: Array, tmp_path: Path) -> None:
    asked = SimpleNamespace(dimensions=DIMENSIONS)
    rules = VECTORS.rules(VectorOptions(memory_mb=2), cast(Asked, asked))
    assert [rules.kind(count) for count in (4_000, 5_000, 10_000)] == ["flat", "hnsw", "ivf-pq"]
    segment = built(tmp_path, vectors[:20], rules)
    assert VECTORS.report(segment, rules, {}) == {
        "index": {
            "kind": "flat",
            "why": "20 documents are few enough to compare with every one",
            "dimensions": DIMENSIONS,
            "size_bytes": (segment.folder / "vectors.faiss").stat().st_size,
        }
    }
    large = rules.describe("ivf-pq", 10_000, "passages", 0)["why"]
    assert large == (
        "10000 passages are too many to compare with every one, and with its vectors whole the index of about 3 MiB "
        "does not fit into --memory-mb 2"
    )
    assert VECTORS.parameters(segment[VECTORS]) == {"kind": "flat"}
    assert VECTORS.counts(segment[VECTORS]) == {"dimensions": DIMENSIONS}
    with pytest.raises(StoreError):
        VECTORS.rules(VectorOptions(store="milvus://127.0.0.1:1"), cast(Asked, asked))
