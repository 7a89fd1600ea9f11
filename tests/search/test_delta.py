"""Base and delta are one index: its parts are those of both, and what was opened once is opened once."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, FormatError, IntegrityError, MismatchError
from glow.index import (
    DeltaHeader,
    Index,
    RowLayout,
    RowMask,
    Segments,
    files_of,
    joined_order,
    open_delta,
    read_tombstones,
)
from glow.index.stored_fields import STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, DenseIndex, build_dense
from glow.records import Document
from glow_index_builder.deltas.plan import DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import delete, upsert
from glow_index_builder.progress import Stages

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class _Silent:
    """Where progress goes."""

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return


@pytest.fixture
def root(toy_index: Path, toy_model: Path, tmp_path: Path) -> IndexRoot:
    """A base, a version that adds two documents and replaces one, and one that also deletes."""
    copy = Path(shutil.copytree(toy_index, tmp_path / "toy"))
    (tmp_path / "new").write_text(
        '{"_id": "b", "text": "zebra"}\n{"_id": "toy/1", "text": "ant"}\n{"_id": "toy/10b", "text": "x"}\n'
    )
    (tmp_path / "ids").write_text("toy/0\nb\n")
    stages = Stages(_Silent())  # type: ignore[arg-type]
    upsert(UpsertOptions(index_root=copy, source=str(tmp_path / "new"), model=toy_model), stages)
    delete(DeleteOptions(index_root=copy, source=str(tmp_path / "ids")), stages)
    return IndexRoot(copy)


@pytest.fixture
def opened(root: IndexRoot) -> Callable[..., Index]:
    """Opens version 0 (the base), 1 or 2."""
    return lambda number, like=None: Index.open(root.folder(root.versions()[number]), like=like)


def test_a_version_opened_like_another_shares_what_is_the_same(opened: Callable[..., Index]) -> None:
    base = opened(0)
    assert type(base[VECTORS]) is DenseIndex
    assert type(base[STORED_FIELDS]) is DocumentStore  # a plain index pays nothing
    first = opened(1, base)
    second = opened(2, first)
    assert base.delta is None
    assert second.preprocessor is base.preprocessor
    assert second.encoder is base.encoder and second.delta is not None and first.delta is not second.delta
    alone = opened(2)
    assert alone.encoder is not base.encoder
    query = base.encoder.encode([base.preprocessor.query("ants and zebras")])
    for here, there in zip(second[VECTORS].search(query, 60), alone[VECTORS].search(query, 60), strict=True):
        np.testing.assert_array_equal(here, there)
    back = opened(0, second)
    assert back[VECTORS] is base[VECTORS] and back.delta is None and back[STORED_FIELDS].count == 50


def test_another_place_shares_nothing(opened: Callable[..., Index], root: IndexRoot) -> None:
    base = opened(0)
    other = Index.open(root.folder(root.versions()[1]), threads=2, like=base)
    assert other.encoder is not base.encoder and other[STORED_FIELDS].count == 52


def test_opening_like_another_still_refuses_damage(opened: Callable[..., Index], root: IndexRoot) -> None:
    base = opened(0)
    folder = root.folder(root.versions()[2])
    for name in ("delta/order.npy", "delta/tombstones.npy", "delta/delta.json"):
        path = folder / name
        whole = path.read_bytes()
        time.sleep(0.01)  # so that the time of the change differs
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(IntegrityError, match=name):
            opened(2, base)
        path.write_bytes(whole)
    assert opened(2, base)[STORED_FIELDS].count == 50


def test_ties_go_by_id_over_both(opened: Callable[..., Index]) -> None:
    index = opened(1)
    ids = [document.id for document in index[STORED_FIELDS].scan()]
    rows = [index[STORED_FIELDS].find(identifier) for identifier in ids]
    assert index.order is not None and len(index.order) == 53 == len(set(index.order.tolist()))
    ranked = [identifier for _, identifier in sorted(zip(index.order[rows].tolist(), ids, strict=True))]
    assert ranked == sorted(ids)


def test_the_order_of_both_is_that_of_all_ids(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = [f"{number:x}é"[: generator.integers(1, 4)] + str(number) for number in range(60)]
    with DocumentWriter(tmp_path / "documents.sqlite") as writer:
        for name in names[:40]:
            writer.add(Document(name, {"text": ("x",)}))
    store = DocumentStore(tmp_path / "documents.sqlite")
    for others in ([], ["\U0001f600", "", "~"], names[40:], names[30:50]):
        found = joined_order(store.id_ranks(), store, others)
        assert sorted(found.tolist()) == list(range(40 + len(others)))
        every = [*names[:40], *others]
        # Of equal ids the later stands first.
        expected = sorted(range(len(every)), key=lambda row: (every[row].encode(), -row))
        assert np.argsort(found).tolist() == expected


@pytest.mark.parametrize("gone", [0, 30, 200])
def test_a_graph_and_its_delta_are_searched_as_one(vectors: Vectors, queries: Vectors, gone: int) -> None:
    some, more = vectors[:1500], vectors[1500:1700]
    lost = np.random.default_rng(gone).choice(1500, gone, replace=False)
    gone_rows = np.sort(lost)
    base = build_dense(some, "hnsw")
    layout, order = RowLayout([1500, 200], gone_rows), np.arange(1700, dtype=np.uint32)
    readers = (base, build_dense(more, "flat"))
    both = VECTORS.reader(Segments("v", readers, layout, layout, order))
    alive = np.setdiff1d(np.arange(1700), lost)
    mask = np.random.default_rng(1).random(1700) < 0.3
    for allowed, left in ((None, alive), (RowMask(mask), np.intersect1d(alive, np.flatnonzero(mask)))):
        exact = np.argsort(-(queries @ vectors[left].T), axis=1)[:, :10]
        scores, rows = both.search(queries, 10, None, allowed)
        found = np.mean([len({*here} & {*left[there]}) for here, there in zip(rows, exact, strict=True)])
        assert found >= 9.5
        assert np.isin(rows, left).all() and (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(base.reader()(np.array([7, 0, 1499])), some[[7, 0, 1499]], atol=1e-7)


def test_a_mask_of_both_never_allows_what_is_gone() -> None:
    segments = RowLayout([6, 3], np.array([1, 4]))
    joined = segments.join([np.ones(6, np.bool_), np.array([True, False, True])])
    assert joined.rows.tolist() == [0, 2, 3, 5, 6, 8] and joined.count == 6 and segments.count == 7
    for given in (joined, RowMask(np.ones(9, np.bool_))):
        base, delta = segments.split(given)
        assert base is not None and base.rows.tolist() == [0, 2, 3, 5]
        assert delta is not None and len(delta) == 3
    with pytest.raises(MismatchError, match="mask of 8 rows for an index of 9"):
        segments.split(RowMask(np.ones(8, np.bool_)))
    assert RowLayout([6, 3], np.empty(0, np.int64)).split(None) == (None, None)


@pytest.mark.parametrize(
    ("rows", "error", "match"),
    [
        ([1, 1], FormatError, "does not ascend"),
        ([5, 2], FormatError, "does not ascend"),
        ([3, 10], MismatchError, "row 10 of a base of 10"),
        ([3], FormatError, "expected uint32"),
    ],
)
def test_tombstones_that_cannot_be_are_refused(
    tmp_path: Path, rows: Sequence[int], error: type[ArtifactError], match: str
) -> None:
    (tmp_path / "delta").mkdir()
    np.save(tmp_path / "delta" / "tombstones.npy", np.array(rows, np.uint32))
    header = DeltaHeader(base_documents=10, base_vectors=10, documents=0, vectors=0, tombstones=2)
    with pytest.raises(error, match=match):
        read_tombstones(tmp_path, header)


def test_a_delta_that_does_not_fit_is_refused(root: IndexRoot) -> None:
    folder = root.folder(root.versions()[1])
    manifest = root.manifest(folder.name)
    files = files_of(folder, manifest)
    for name in ("tombstones.npy", "order.npy"):
        less = {path: key for path, key in files.items() if path != f"delta/{name}"}
        with pytest.raises(MismatchError, match=name):
            open_delta(folder, manifest, less)
    header = DeltaHeader.model_validate_json((folder / "delta" / "delta.json").read_bytes())
    header.model_copy(update={"documents": 4, "vectors": 4}).save(folder / "delta" / "delta.json")
    with pytest.raises(ArtifactError):
        open_delta(folder, manifest, files)
    (folder / "delta" / "delta.json").write_text('{"format": 2}')
    with pytest.raises(FormatError, match="not of format 1"):
        open_delta(folder, manifest, files)
