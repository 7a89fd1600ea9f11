"""An index version opens only where all its parts belong together."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, DeviceError, IntegrityError, MismatchError
from glow.index import COMPONENTS, Index
from glow.index.passages import PASSAGES, build_passages
from glow.index.stored_fields import STORED_FIELDS, DocumentStore
from glow.index.vectors import VECTORS, DenseIndex, build_dense
from glow.records import Document
from glow.text import TermTable
from glow.text.passages import PassageCutter


@pytest.fixture
def version(toy_index: Path, tmp_path: Path) -> Path:
    """A copy of the toy index's version, to be damaged."""
    root = IndexRoot(toy_index)
    return Path(shutil.copytree(root.folder(root.current()), tmp_path / root.current()))


def remake(folder: Path, change: Callable[[dict[str, Any]], None] = lambda body: None) -> None:
    """Gives a changed folder a manifest that fits its files, as somebody who mixes indexes by hand would."""
    path = folder / "manifest.json"
    body = json.loads(path.read_bytes())
    del body["checksum"]
    for name in list(body["files"]):
        data = (folder / name).read_bytes()
        body["files"][name] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(body)
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body["checksum"] = hashlib.sha256(canonical).hexdigest()
    path.write_bytes(json.dumps(body, indent=2, sort_keys=True).encode() + b"\n")


def test_an_open_index_answers_with_documents(version: Path) -> None:
    index = Index.open(version)
    vectors = index.encoder.encode([index.preprocessor.query("how do bees find the way home")])
    found = index[STORED_FIELDS].rows(index[VECTORS].search(vectors, 3)[1][0].tolist())
    assert len(index[VECTORS]) == index[STORED_FIELDS].count == 50
    assert "toy/0" in [document.id for document in found]
    assert index.version == version.name
    assert index.model.startswith("toy-model@sha256:")


def of_no_component(version: Path) -> list[str]:
    """The files of a version that no component has: those are damaged in `tests/components`."""
    owned = tuple(path for component in COMPONENTS for path in (*component.paths, *component.stays))
    names = (path.relative_to(version).as_posix() for path in version.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith(owned))


def test_a_changed_byte_in_a_file_of_no_component_is_refused_by_name(version: Path) -> None:
    for name in of_no_component(version):
        path = version / name
        whole = path.read_bytes()
        for position in {0, len(whole) // 2, len(whole) - 1}:
            changed = bytearray(whole)
            changed[position] ^= 0x40
            path.write_bytes(changed)
            with pytest.raises(ArtifactError, match=path.name.replace(".", r"\.")):
                Index.open(version)
        path.write_bytes(whole)
    Index.open(version)


def test_a_missing_file_of_no_component_is_refused_by_name(version: Path) -> None:
    names = of_no_component(version)
    assert len(names) >= 13
    for name in names:
        shutil.move(version / name, version.parent / "aside")
        with pytest.raises(ArtifactError, match=name.replace(".", r"\.")):
            Index.open(version)
        shutil.move(version.parent / "aside", version / name)


def test_the_term_table_of_another_index_is_refused(version: Path) -> None:
    shutil.rmtree(version / "terms")
    TermTable.from_counts({"bees": 3, "honey": 1}, 4, {"query": 3.0}).save(version / "terms")
    with pytest.raises(IntegrityError, match="terms/"):
        Index.open(version)
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


@pytest.mark.parametrize("name", ["vectors.faiss", "documents.sqlite", "terms/dfs.npy", "model/query.onnx"])
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


def test_a_device_that_is_not_there_is_refused(version: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has the CUDA provider")
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
    assert isinstance(index[VECTORS], DenseIndex)


def add_passages(body: dict[str, Any], folder: Path, count: int) -> dict[str, Any]:
    """Names the files of passages in a manifest."""
    for path in (folder / "passages").iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        name = path.relative_to(folder).as_posix()
        body["files"][name] = {"size_bytes": path.stat().st_size, "sha256": digest}
    body["counts"]["passages"] = count
    return body


@pytest.fixture
def cut_version(version: Path) -> tuple[Path, int]:
    """A version of other bodies, cut, with one vector a passage; and how many they are."""
    store = DocumentStore(version / "documents.sqlite")
    cutter = PassageCutter(Index.open(version).preprocessor)
    longer = (
        Document(found.id, {**found.fields, "text": ("Bees dance. " * 40 * (row % 3) + "End.",)})
        for row, found in enumerate(store.scan())
    )
    count = len(build_passages(longer, cutter, version))
    build_dense(np.eye(count, 32, dtype=np.float32), "flat").save(version / "vectors.faiss")
    return version, count


def test_an_index_of_passages_opens_with_a_vector_for_each(cut_version: tuple[Path, int]) -> None:
    version, count = cut_version
    remake(version, lambda body: add_passages(body, version, count))
    index = Index.open(version)
    assert index.holds(PASSAGES)
    assert len(index[VECTORS]) == len(index[PASSAGES]) == count > index[STORED_FIELDS].count == 50
    assert index.order is not None and index[PASSAGES].order is not None
    documents = index[PASSAGES].documents[np.argsort(index[PASSAGES].order)]
    assert (np.diff(index.order[documents].astype(int)) >= 0).all()
