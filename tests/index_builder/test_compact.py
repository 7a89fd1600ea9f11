"""`compact` keeps the kind of the dense index, whatever it holds, and what belongs to the version as a whole."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import BuildError
from glow.index import FUSION_FILE, Fusion, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_index_builder.building.builder import build
from glow_index_builder.deltas.change import delete, upsert
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.options import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import derive

COUNT = 300


def stages() -> Stages:
    return Stages(io.StringIO())


def make(model: Path, folder: Path) -> IndexRoot:
    """An index with a delta of one document and two tombstones, and a fusion of its own."""
    lines = [
        {"_id": f"d{row}", "title": f"bees {row}", "text": f"number {row * row}"} for row in range(COUNT)
    ]
    (folder / "base").write_text("".join(json.dumps(line) + "\n" for line in lines))
    build(
        BuildOptions(model=model, source=str(folder / "base"), index_root=folder / "index", index="hnsw"),
        stages(),
    )
    root = IndexRoot(folder / "index")
    root.publish(
        derive(
            root,
            root.current(),
            {},
            {"gate": {"status": "passed"}},
            lambda path: Fusion(method="rrf", k=7).save(path / FUSION_FILE),
        )
    )
    (folder / "new").write_text('{"_id": "d7", "text": "a zebra"}\n')
    (folder / "ids").write_text("d0\n")
    upsert(UpsertOptions(index_root=root.path, source=str(folder / "new"), model=model), stages())
    delete(DeleteOptions(index_root=root.path, source=str(folder / "ids")), stages())
    return root


def opened(root: IndexRoot) -> Index:
    return Index.open(root.folder(root.current()))


def test_an_index_stays_of_its_kind_and_what_belongs_to_the_version_stays(
    toy_model: Path, tmp_path: Path
) -> None:
    root = make(toy_model, tmp_path)
    before = opened(root)
    assert before[VECTORS].kind == "hnsw" and before.delta is not None
    report = compact(CompactOptions(index_root=root.path), stages())
    after = opened(root)
    assert report["index"]["kind"] == after[VECTORS].kind == "hnsw" and after.delta is None
    assert after.fusion == before.fusion == Fusion(method="rrf", k=7)
    assert after.manifest.hashes == before.manifest.hashes and after[STORED_FIELDS].count == COUNT - 1
    assert "gate" not in after.manifest.parameters
    assert after.manifest.parents["version"]["name"] == before.version
    assert json.loads((root.folder(after.version) / "report.json").read_bytes())["status"] == "compacted"
    query = after.encoder.encode([after.preprocessor.query("a zebra")])
    for index in (before, after):
        _, rows = index[VECTORS].search(query, 200, order=index.order)
        ids = {document.id for document in index[STORED_FIELDS].rows(rows[rows >= 0].tolist())}
        assert "d7" in ids and "d0" not in ids
    # Row 0 is gone: what was row 6 is row 5 now, and its vector is the same, to the bit.
    old, new = (
        before[VECTORS].score(query[0], np.array([6])),
        after[VECTORS].score(query[0], np.array([5])),
    )
    assert old == new


def test_an_index_without_documents_is_not_compacted(toy_model: Path, tmp_path: Path) -> None:
    (tmp_path / "base").write_text('{"_id": "d", "text": "bees"}\n')
    build(
        BuildOptions(model=toy_model, source=str(tmp_path / "base"), index_root=tmp_path / "index"), stages()
    )
    (tmp_path / "ids").write_text("d\n")
    delete(DeleteOptions(index_root=tmp_path / "index", source=str(tmp_path / "ids")), stages())
    with pytest.raises(BuildError, match="no document is left"):
        compact(CompactOptions(index_root=tmp_path / "index"), stages())
