"""A shard's vectors are those of its documents in order, whatever is encoded beside it and however long they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glow_index_builder.encoding.encode as encode
from glow.collection import read_documents
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document
from glow.runtime import Encoder, Model
from glow_index_builder.encoding.encode import ShardEncoder, ShardJob
from glow_index_builder.encoding.runner import ThreadRunner
from glow_index_builder.encoding.shards import Shard, plan_shards, read_report
from glow_index_builder.encoding.text_encoder import EncodeError, TextEncoder


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture(scope="session")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


def job_of(folder: Path, model: Model, documents: Sequence[Document], threads: int = 1) -> ShardJob:
    folder.mkdir(exist_ok=True)
    with DocumentWriter(folder / "store") as writer:
        for document in documents:
            writer.add(document)
    model.preprocessor.terms.save(folder / "terms")
    (folder / "shards").mkdir()
    return ShardJob(model.folder, folder / "store", folder / "terms", None, folder / "shards", "cpu", threads)


def vectors_of(job: ShardJob, shard: Shard) -> Any:
    return np.fromfile(job.shards / f"{shard.name}.f32", "<f4").reshape(-1, 32)


def test_row_i_is_document_i(model: Model, documents: list[Document], tmp_path: Path) -> None:
    job, shard = job_of(tmp_path, model, documents), Shard(7, 30, skip=((9, "bad"),))
    report = ShardEncoder.open(job).encode(shard)
    kept = documents[7:9] + documents[10:30]
    assert report is not None
    assert report == read_report(job.shards, shard, 32)
    assert report.texts.ids == tuple(document.id for document in kept)
    assert (report.texts.rows, report.skipped) == (22, ((9, "bad"),))
    vectors = vectors_of(job, shard)
    for row, document in enumerate(kept):
        alone = model.encoder("document").encode([model.preprocessor.document(document)])[0]
        np.testing.assert_allclose(vectors[row], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_any_number_of_threads_writes_the_same_shards(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    found = []
    for threads in (1, 3):
        job = job_of(tmp_path / str(threads), model, documents, threads)
        with ThreadRunner(job) as runner:
            outcomes = list(runner.run(plan_shards(50, 7)))
        assert {outcome.shard.start for outcome in outcomes} == set(range(0, 50, 7))
        found.append({path.name: path.read_bytes() for path in job.shards.glob("*.f32")})
    assert found[0] == found[1]
    assert len(found[0]) == 8


def test_a_probe_leaves_nothing(model: Model, documents: list[Document], tmp_path: Path) -> None:
    job = job_of(tmp_path, model, documents)
    assert ShardEncoder.open(job).encode(Shard(0, 5, is_probe=True)) is None
    assert not list(job.shards.iterdir())


def test_documents_that_lose_words_are_counted_by_field(model: Model, tmp_path: Path) -> None:
    long = [
        Document("short", {"title": ("bees",)}),
        Document("title", {"title": ("bees " * 100,)}),
        Document("both", {"title": ("bees " * 100,), "text": ("owls " * 100,)}),
    ]
    report = ShardEncoder.open(job_of(tmp_path, model, long)).encode(Shard(0, 3))
    assert report is not None and report.texts.truncated == {"title": 2, "text": 1}


def test_long_documents_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_CHARACTERS", 100)
    documents = [Document(str(n), {"text": ("x" * 40, "y" * 20)}) for n in range(5)]
    assert [len(chunk) for chunk in encode._chunks(documents)] == [2, 2, 1]


def test_no_more_than_a_chunk_is_read_before_it_is_encoded(
    model: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading ahead of the tower would hold the shard in memory."""
    monkeypatch.setattr(encode, "CHUNK_DOCUMENTS", 7)
    encoder = ShardEncoder.open(job_of(tmp_path, model, documents))
    ids: list[str] = []
    rows = 0
    for part in encoder._parts(Shard(0, 50), ids):
        rows += len(part.vectors)
        assert len(ids) == rows
    assert rows == 50


class BrokenEncoder(Encoder):
    """A tower whose weights overflow for one document: the shipped towers cannot be made to."""

    def encode(self, sequences: object) -> object:  # type: ignore[override]
        """As the tower, but for row 3."""
        vectors = super().encode(sequences)  # type: ignore[arg-type]
        vectors[3, 0] = np.nan
        return vectors


def test_a_vector_that_is_not_finite_fails_the_shard_and_names_the_document(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    job = job_of(tmp_path, model, documents)
    broken = BrokenEncoder(model.folder / "document.onnx")
    texts = TextEncoder(model.preprocessor, broken)
    encoder = ShardEncoder(texts, DocumentStore(job.store), TextsOfDocuments(), job.shards)
    with pytest.raises(EncodeError, match="vector of document 'toy/13' is not finite"):
        encoder.encode(Shard(10, 20))
    assert not list(job.shards.iterdir())
