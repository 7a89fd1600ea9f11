"""An index version opens only where all its parts belong together; base and delta are one index, opened once."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, DeviceError, FormatError, IntegrityError, MismatchError
from glow.index import (
    COMPONENTS,
    DeltaHeader,
    Index,
    RowLayout,
    RowMask,
    files_of,
    joined_order,
    open_delta,
    read_tombstones,
)
from glow.index.stored_fields import STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, DenseIndex, build_dense
from glow.records import Document
from glow.text import TermTable
from tests.artifact.conftest import remake
from tests.made_index import deleted, upserted

__all__ = ["remake"]


@pytest.fixture
def version(toy_index: Path, tmp_path: Path) -> Path:
    """A copy of the toy index's version, to be damaged."""
    root = IndexRoot(toy_index)
    return Path(shutil.copytree(root.folder(root.current()), tmp_path / root.current()))


def test_an_open_index_answers_with_documents(version: Path) -> None:
    index = Index.open(version)
    vectors = index.encoder.encode([index.preprocessor.query("how do bees find the way home")])
    found = index[STORED_FIELDS].rows(index[VECTORS].search(vectors, 3)[1][0].tolist())
    assert len(index[VECTORS]) == index[STORED_FIELDS].count == 50
    assert "toy/0" in [document.id for document in found]
    assert index.version == version.name
    assert index.model.startswith("toy-model@sha256:")


def test_a_changed_or_missing_file_of_no_component_is_refused_by_name(version: Path) -> None:
    """Those of components are damaged in `tests/components`."""
    owned = tuple(path for component in COMPONENTS for path in (*component.paths, *component.stays))
    names = (path.relative_to(version).as_posix() for path in version.rglob("*") if path.is_file())
    others = [name for name in names if not name.startswith(owned)]
    assert len(others) >= 13
    for name in others:
        whole = (version / name).read_bytes()
        middle = len(whole) // 2
        for damaged in (whole[:middle] + bytes([whole[middle] ^ 0x40]) + whole[middle + 1 :], None):
            (version / name).unlink()
            if damaged is not None:
                (version / name).write_bytes(damaged)
            with pytest.raises(ArtifactError, match=name.rpartition("/")[2].replace(".", r"\.")):
                Index.open(version)
            (version / name).write_bytes(whole)
    Index.open(version)


def test_the_term_table_of_another_index_is_refused(version: Path) -> None:
    shutil.rmtree(version / "terms")
    TermTable.from_counts({"bees": 3, "honey": 1}, 4, {"query": 3.0}).save(version / "terms")
    remake(version)
    with pytest.raises(MismatchError, match=r"term statistics .* have hash \w+, its manifest expects \w+"):
        Index.open(version)


@pytest.mark.parametrize("name", ["query.onnx", "vocab.txt", "schema.json", "weighting.json", "towers.json"])
def test_the_query_side_of_another_model_is_refused(version: Path, name: str) -> None:
    with (version / "model" / name).open("ab") as file:
        file.write(b"\n")
    remake(version)
    with pytest.raises(MismatchError, match=f"model/{name} is not the file of the model"):
        Index.open(version)


def test_vectors_of_other_dimensions_than_the_tower_are_refused(version: Path) -> None:
    build_dense(np.eye(50, 16, dtype=np.float32), "flat").save(version / "vectors.faiss")
    remake(version)
    with pytest.raises(MismatchError, match="vectors of 16 dimensions, a query tower of 32"):
        Index.open(version)


@pytest.mark.parametrize("name", ["terms/dfs.npy", "model/query.onnx"])
def test_a_file_that_the_manifest_does_not_vouch_for_is_never_opened(version: Path, name: str) -> None:
    remake(version, lambda body: body["files"].pop(name))
    (version / name).write_bytes(b"anything")
    with pytest.raises(MismatchError, match=name):
        Index.open(version)


@pytest.mark.parametrize("parents", [{}, {"model": "toy"}, {"model": {}}, {"model": {"files": []}}])
def test_an_index_that_does_not_say_which_model_built_it_is_refused(version: Path, parents: object) -> None:
    remake(version, lambda body: body.update(parents=parents))
    with pytest.raises(MismatchError, match="which model built it"):
        Index.open(version)


def test_a_model_folder_is_no_index(toy_model: Path) -> None:
    with pytest.raises(MismatchError, match="of kind model"):
        Index.open(toy_model)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="this machine has the CUDA provider",
)
def test_a_device_that_is_not_there_is_refused(version: Path) -> None:
    with pytest.raises(DeviceError, match="cuda"):
        Index.open(version, "cuda")


def test_vectors_are_read_from_the_folder_that_was_verified(version: Path) -> None:
    """Loading maps the file into memory: replacing it by rename must not change an open index."""
    index = Index.open(version)
    query = index.encoder.encode([index.preprocessor.query("bees")])
    before = index[VECTORS].search(query, 5)[1].tolist()
    build_dense(np.eye(50, 32, dtype=np.float32), "flat").save(version / "new")
    (version / "new").replace(version / "vectors.faiss")
    assert index[VECTORS].search(query, 5)[1].tolist() == before


@pytest.fixture(scope="module")
def changed(toy_index: Path, toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    """A base, a version that adds two documents and replaces one, and one that also deletes."""
    root = IndexRoot(Path(shutil.copytree(toy_index, tmp_path_factory.mktemp("changed") / "toy")))
    texts = {"b": "zebra", "toy/1": "ant", "toy/10b": "x"}
    upserted(root, toy_model, [{"_id": name, "text": text} for name, text in texts.items()])
    deleted(root, "toy/0", "b")
    return root


@pytest.fixture
def opened(changed: IndexRoot) -> Callable[..., Index]:
    return lambda number, **how: Index.open(changed.folder(changed.versions()[number]), **how)


def test_a_version_opened_like_another_shares_what_is_the_same(opened: Callable[..., Index]) -> None:
    base = opened(0)
    assert type(base[VECTORS]) is DenseIndex
    assert type(base[STORED_FIELDS]) is DocumentStore  # a plain index pays nothing
    first = opened(1, like=base)
    second = opened(2, like=first)
    assert base.delta is None and second.delta is not None and first.delta is not second.delta
    assert second.encoder is base.encoder and second.preprocessor is base.preprocessor
    alone = opened(2)
    assert alone.encoder is not base.encoder
    query = base.encoder.encode([base.preprocessor.query("ants and zebras")])
    for here, there in zip(second[VECTORS].search(query, 60), alone[VECTORS].search(query, 60), strict=True):
        np.testing.assert_array_equal(here, there)
    back = opened(0, like=second)
    assert back[VECTORS] is base[VECTORS] and back.delta is None and back[STORED_FIELDS].count == 50
    elsewhere = opened(1, like=base, threads=2)
    assert elsewhere.encoder is not base.encoder and elsewhere[STORED_FIELDS].count == 52


@pytest.mark.parametrize("name", ["order.npy", "tombstones.npy", "delta.json"])
def test_opening_like_another_still_refuses_damage(
    opened: Callable[..., Index], changed: IndexRoot, name: str
) -> None:
    path = changed.folder(changed.versions()[2]) / "delta" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IntegrityError, match=f"delta/{name}"):
        opened(2, like=opened(0))
    path.write_bytes(whole)
    assert opened(2, like=opened(0))[STORED_FIELDS].count == 50


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


def test_a_delta_that_does_not_fit_is_refused(changed: IndexRoot, tmp_path: Path) -> None:
    version = changed.versions()[1]
    folder, manifest = (
        Path(shutil.copytree(changed.folder(version), tmp_path / version)),
        changed.manifest(version),
    )
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
