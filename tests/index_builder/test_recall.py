"""Recall tells how much of exact search an index finds."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, build_dense
from glow.records import Document
from glow_index_builder.building.recall import measure_recall


@pytest.fixture(scope="module")
def index(toy_index: Path) -> Index:
    root = IndexRoot(toy_index)
    return Index.open(root.folder(root.current()))


@pytest.fixture(scope="module")
def vectors(index: Index) -> NDArray[np.float32]:
    """The index's vectors, read back from FAISS."""
    stored: NDArray[np.float32] = index[VECTORS]._index.reconstruct_n(0, len(index[VECTORS]))  # type: ignore[attr-defined]  # the part itself, behind its view
    return stored


def test_an_exact_index_has_recall_one(index: Index, vectors: NDArray[np.float32]) -> None:
    found = measure_recall(index[VECTORS], vectors, index[STORED_FIELDS], index.preprocessor, index.encoder)
    assert (found.recall, found.depth, found.queries) == (1.0, 10, 50)


def test_an_index_of_other_vectors_has_low_recall(index: Index, vectors: NDArray[np.float32]) -> None:
    wrong = build_dense(np.ascontiguousarray(vectors[::-1]), "flat")
    found = measure_recall(wrong, vectors, index[STORED_FIELDS], index.preprocessor, index.encoder)
    assert found.recall < 0.5


def test_the_sample_is_the_same_every_time(index: Index, vectors: NDArray[np.float32]) -> None:
    wrong = build_dense(np.ascontiguousarray(vectors[::-1]), "flat")
    found = {
        measure_recall(wrong, vectors, index[STORED_FIELDS], index.preprocessor, index.encoder)
        for _ in range(3)
    }
    assert len(found) == 1


def test_documents_of_the_same_text_count_as_each_other(index: Index, tmp_path: Path) -> None:
    """Thirty equal vectors: any ten of them are the right ten."""
    with DocumentWriter(tmp_path / "store") as writer:
        for number in range(30):
            writer.add(Document(str(number), {"title": ("bees",)}))
    vectors = np.repeat(index.encoder.encode([index.preprocessor.query("bees")]), 30, axis=0)
    last_first = build_dense(np.ascontiguousarray(vectors[::-1]), "hnsw")
    found = measure_recall(
        last_first, vectors, DocumentStore(tmp_path / "store"), index.preprocessor, index.encoder
    )
    assert found.recall == 1.0


def test_documents_without_title_are_asked_for_by_their_text(index: Index, tmp_path: Path) -> None:
    with DocumentWriter(tmp_path / "store") as writer:
        writer.add(Document("a", {"url": ("https://example.org/bees",)}))
        writer.add(Document("b", {"title": (" ",), "text": ("owls hunt at night",)}))
    vectors = index.encoder.encode([index.preprocessor.query(text) for text in ("bees", "owls")])
    found = measure_recall(
        build_dense(vectors, "flat"),
        vectors,
        DocumentStore(tmp_path / "store"),
        index.preprocessor,
        index.encoder,
    )
    assert (found.recall, found.depth, found.queries) == (1.0, 2, 2)
