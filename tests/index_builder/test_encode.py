"""Stored documents become vectors in row order, whatever the number of threads and the size of chunks."""

from pathlib import Path

import numpy as np
import pytest

import index_builder.encode as encode
from glow.collection import read_documents
from glow.errors import BuildError
from glow.records import Document
from glow.runtime import Encoder, Model
from index_builder.encode import encode_corpus, map_vectors


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture(scope="session")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_DOCUMENTS", 7)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_row_i_is_document_i(model: Model, documents: list[Document], tmp_path: Path, threads: int) -> None:
    encoder = model.encoder("document")
    done: list[int] = []
    encode_corpus(iter(documents), model.preprocessor, encoder, threads, tmp_path / "vectors", done.append)
    vectors = map_vectors(tmp_path / "vectors", len(documents), encoder.dimensions)
    for row, document in enumerate(documents):
        alone = encoder.encode([model.preprocessor.document(document)])[0]
        np.testing.assert_allclose(vectors[row], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert done == [7] * 7 + [1]


@pytest.mark.usefixtures("small_chunks")
def test_any_number_of_threads_writes_the_same_bytes(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    for threads in (1, 3):
        path = tmp_path / str(threads)
        encode_corpus(documents, model.preprocessor, model.encoder("document"), threads, path, lambda _: None)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()


def test_documents_that_lose_words_are_counted_by_field(model: Model, tmp_path: Path) -> None:
    documents = [
        Document("short", {"title": ("bees",)}),
        Document("title", {"title": ("bees " * 100,)}),
        Document("both", {"title": ("bees " * 100,), "text": ("owls " * 100,)}),
    ]
    encoder = model.encoder("document")
    found = encode_corpus(documents, model.preprocessor, encoder, 1, tmp_path / "v", lambda _: None)
    assert found == {"title": 2, "text": 1}


def test_long_documents_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_CHARACTERS", 100)
    documents = [Document(str(n), {"text": ("x" * 40, "y" * 20)}) for n in range(5)]
    assert [len(chunk) for chunk in encode._chunks(documents)] == [2, 2, 1]


@pytest.mark.usefixtures("small_chunks")
def test_no_more_chunks_are_read_than_are_worked_on(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    """Reading ahead of the towers would hold the corpus in memory."""
    read: list[int] = []
    written: list[int] = []

    def watched() -> object:
        for number, document in enumerate(documents):
            assert number - sum(written) <= 7 * 4
            read.append(number)
            yield document

    encode_corpus(watched(), model.preprocessor, model.encoder("document"), 2, tmp_path / "v", written.append)  # type: ignore[arg-type]
    assert len(read) == sum(written) == 50


class BrokenEncoder(Encoder):
    """A tower whose weights overflow for one document: the shipped towers cannot be made to."""

    def encode(self, sequences: object) -> object:  # type: ignore[override]
        """As the tower, but for row 3."""
        vectors = super().encode(sequences)  # type: ignore[arg-type]
        vectors[3, 0] = np.nan
        return vectors


@pytest.mark.usefixtures("small_chunks")
def test_a_vector_that_is_not_finite_fails_the_build_and_names_the_row(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    encoder = BrokenEncoder(model.folder / "document.onnx")
    with pytest.raises(BuildError, match="vector of row 3 is not finite"):
        encode_corpus(documents, model.preprocessor, encoder, 2, tmp_path / "v", lambda _: None)
