"""A model folder, opened: verified, one hash, its own preprocessor; documents encoded as a stream."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from glow.collection import read_documents
from glow.errors import ArtifactError, DeviceError, FormatError, IntegrityError
from glow.records import Document
from glow.runtime import Model, open_session, preprocess_documents
from glow.runtime.model import CHUNK_DOCUMENTS
from glow.text import TermTable


@pytest.fixture
def copy(toy_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_model, tmp_path / "model"))


@pytest.fixture(scope="module")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


def test_both_towers_have_the_dimensions_of_the_model(model: Model) -> None:
    assert model.encoder("query").dimensions == model.encoder("document").dimensions > 0


def test_the_label_names_the_hash(model: Model) -> None:
    assert model.label == f"{model.manifest.name}@sha256:{model.hash[:8]}"


def test_a_copy_is_the_same_model(model: Model, copy: Path) -> None:
    assert Model.open(copy).hash == model.hash


@pytest.mark.parametrize("name", ["query.onnx", "words.bin", "vocab.txt", "weighting.json", "terms/dfs.npy"])
def test_a_changed_byte_is_refused_by_name(name: str, copy: Path) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(IntegrityError, match=name):
        Model.open(copy)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        Model.open(tmp_path)


def test_an_index_brings_its_own_table(model: Model) -> None:
    """Only weights change with it, ids do not."""
    text = "how do bees find home"
    table = TermTable.from_counts({"bees": 999}, 1000, {"query": 3.0})
    own, other = model.preprocessor.query(text), model.with_terms(table).query(text)
    assert (own.ids == other.ids).all()
    assert np.abs(own.weights - other.weights).max() > 1e-3
    assert model.preprocessor.terms is not table


def test_documents_are_read_in_order_and_in_chunks(model: Model, documents: list[Document]) -> None:
    preprocessor, encoder = model.preprocessor, model.encoder("document")
    many = (documents * (CHUNK_DOCUMENTS // len(documents) + 2))[: CHUNK_DOCUMENTS + 7]
    chunks = list(preprocess_documents(iter(many), preprocessor))
    assert [len(chunk) for chunk, _, _ in chunks] == [CHUNK_DOCUMENTS, 7]
    assert [document for chunk, _, _ in chunks for document in chunk] == many
    vectors = np.concatenate([encoder.encode(sequences) for _, _, sequences in chunks])
    alone = np.concatenate([encoder.encode([preprocessor.document(document)]) for document in documents])
    assert vectors == pytest.approx(np.resize(alone, vectors.shape), abs=1e-5)


def test_documents_that_lost_words_are_counted_by_field(model: Model) -> None:
    documents = [
        Document("fits", {"title": ("bees",)}),
        Document("long", {"title": ("bees " * 99,), "text": ("home " * 999,)}),
        Document("body", {"text": ("home " * 999,)}),
    ]
    [(_, truncated, _)] = preprocess_documents(documents, model.preprocessor)
    assert truncated == {"title": 1, "text": 2}


def test_a_stream_is_not_read_ahead(model: Model, documents: list[Document]) -> None:
    """Memory stays bounded: the second chunk is not read before the first has been taken."""
    taken = 0

    def stream() -> Iterator[Document]:
        nonlocal taken
        for document in documents * (3 * CHUNK_DOCUMENTS // len(documents) + 1):
            taken += 1
            yield document

    next(preprocess_documents(stream(), model.preprocessor))
    assert taken == CHUNK_DOCUMENTS


def test_no_document_gives_no_chunk(model: Model) -> None:
    assert list(preprocess_documents([], model.preprocessor)) == []


ROOT = Path(__file__).parents[2]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime offers CUDA, so its absence cannot be shown here")
def test_cuda_is_refused_where_there_is_none(toy_model: Path) -> None:
    """Never a silent fall-back to the CPU; the message says what there is and what to do."""
    said = r"'cuda' needs CUDAExecutionProvider.*CPUExecution.*docs/install\.md"
    with pytest.raises(DeviceError, match=said):
        open_session(toy_model / "query.onnx", "cuda")


def test_cpu_is_cpu(toy_model: Path) -> None:
    session = open_session(toy_model / "query.onnx", "cpu", threads=2)
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("content", [None, b"", b"no model", b"\x08\x08garbage" * 100], ids=ascii)
def test_a_file_that_is_no_model_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "query.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=r"cannot open query\.onnx on cpu"):
        open_session(path)


def test_a_truncated_model_is_refused(toy_model: Path, tmp_path: Path) -> None:
    whole = (toy_model / "query.onnx").read_bytes()
    (tmp_path / "query.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError):
        open_session(tmp_path / "query.onnx")


def test_a_model_without_its_word_table_is_refused(toy_model: Path, tmp_path: Path) -> None:
    """The token embeddings of both towers are in a separate file."""
    (tmp_path / "query.onnx").write_bytes((toy_model / "query.onnx").read_bytes())
    with pytest.raises(FormatError):
        open_session(tmp_path / "query.onnx")


def test_onnx_runtime_tells_nobody_and_leaves_nothing_behind(toy_model: Path, tmp_path: Path) -> None:
    """It would keep the machine's number below HOME and send events, unless told not to before it is loaded."""
    code = f"""
import os
import subprocess
import sys
from pathlib import Path
from glow.runtime import Model
model = Model.open(Path({str(toy_model)!r}))
model.encoder("query").encode([model.preprocessor.query("bees")])
import os
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=ROOT, env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*"))
