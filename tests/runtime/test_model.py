"""A model folder, opened: verified, one hash, its own preprocessor; a vector depends only on its own tokens."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from glow.artifact import default_model
from glow.collection import read_documents
from glow.errors import ArtifactError, DeviceError, FormatError, IntegrityError
from glow.records import Document
from glow.runtime import Encoder, Model, open_session, preprocess_documents
from glow.runtime.model import CHUNK_DOCUMENTS
from glow.text import TermTable, WeightedTokens
from glow.text.preprocessor import pad


@pytest.fixture
def copy(toy_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_model, tmp_path / "model"))


@pytest.fixture(scope="module")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


def test_the_label_names_the_hash_and_a_copy_is_the_same_model(model: Model, copy: Path) -> None:
    assert model.label == f"{model.manifest.name}@sha256:{model.hash[:8]}"
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
    taken = 0

    def stream() -> Iterator[Document]:
        nonlocal taken
        for document in documents * (3 * CHUNK_DOCUMENTS // len(documents) + 1):
            taken += 1
            yield document

    next(preprocess_documents(stream(), model.preprocessor))
    assert taken == CHUNK_DOCUMENTS
    assert list(preprocess_documents([], model.preprocessor)) == []


ROOT = Path(__file__).parents[2]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime offers CUDA, so its absence cannot be shown here")
def test_the_cpu_never_computes_in_place_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    path = default_model() / "query.onnx"
    with pytest.raises(
        DeviceError, match=r"'cuda' needs CUDAExecutionProvider.*CPUExecution.*docs/install\.md"
    ):
        open_session(path, "cuda")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(DeviceError, match=r"query\.onnx is int8, which only CPUs compute; export fp16"):
        open_session(path, "cuda")


def test_cpu_is_cpu(toy_model: Path) -> None:
    session = open_session(toy_model / "query.onnx", "cpu", threads=2)
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_file_that_is_no_model_is_refused(toy_model: Path, tmp_path: Path) -> None:
    path, whole = tmp_path / "query.onnx", (toy_model / "query.onnx").read_bytes()
    half = whole[: len(whole) // 2]
    # The last is whole, but the token embeddings of both towers are in a separate file.
    for content in (None, b"", b"no model", b"\x08\x08garbage" * 100, half, whole):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(FormatError, match=r"cannot open query\.onnx on cpu"):
            open_session(path)


def test_onnx_runtime_tells_nobody_and_leaves_nothing_behind(toy_model: Path, tmp_path: Path) -> None:
    """It would keep the machine's number below HOME and send events, unless told not to before it is loaded."""
    code = f"""
import os
from pathlib import Path
from glow.runtime import Model
model = Model.open(Path({str(toy_model)!r}))
model.encoder("query").encode([model.preprocessor.query("bees")])
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=ROOT, env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*"))


@pytest.fixture(scope="module", params=["query", "document"])
def tower(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def encoder(model: Model, tower: str) -> Encoder:
    return model.encoder(tower)


LONG = "what is the shortest way home " * 9
TEXTS = ["bees", "how do bees find home?", "", "日本 \ud800 ?!", LONG, "a b c"]


@pytest.fixture(scope="module")
def sequences(model: Model) -> list[WeightedTokens]:
    return [model.preprocessor.query(text) for text in TEXTS]


def test_vectors_are_normalised_float32_in_order(encoder: Encoder, sequences: list[WeightedTokens]) -> None:
    vectors = encoder.encode(sequences)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), encoder.dimensions)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    assert encoder.encode(sequences[::-1]) == pytest.approx(vectors[::-1], abs=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert encoder.encode([]).shape == (0, encoder.dimensions)


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_a_sequence_alone_is_as_in_any_batch(
    batch_tokens: int, model: Model, tower: str, encoder: Encoder, sequences: list[WeightedTokens]
) -> None:
    alone = np.concatenate([encoder.encode([sequence]) for sequence in sequences])
    assert model.encoder(tower, batch_tokens=batch_tokens).encode(sequences) == pytest.approx(alone, abs=1e-5)
    assert encoder.run(sequences) == pytest.approx(alone, abs=1e-5)


def run_padded(encoder: Encoder, sequence: WeightedTokens, extra: int, fill: Callable) -> np.ndarray:
    batch = pad([sequence], 0)
    arrays = {"ids": batch.ids, "mask": batch.mask, "field_ids": batch.field_ids, "weights": batch.weights}
    for name, array in arrays.items():
        tail = np.full((1, extra), fill(name), array.dtype)  # type: ignore[attr-defined]  # the type is what is tested
        arrays[name] = np.concatenate([array, tail], axis=1)
    return encoder._session.run(["vector"], arrays)[0]


@pytest.mark.parametrize("weight", [0.0, 1.0, 1000.0])
def test_padding_changes_no_vector(weight: float, encoder: Encoder, sequences: list[WeightedTokens]) -> None:
    content = {"ids": 5, "mask": 0, "field_ids": 0, "weights": weight}
    for sequence in sequences:
        for extra in (1, 15):
            if len(sequence) + extra <= 24:
                padded = run_padded(encoder, sequence, extra, content.__getitem__)
                assert padded == pytest.approx(encoder.encode([sequence]), abs=1e-5)


@pytest.mark.parametrize("side", ["query", "document"])
def test_weights_and_field_ids_change_a_vector(model: Model, side: str) -> None:
    """The towers read them: a model whose weights were dropped on the way would pass every other test here."""
    encoder, tokens = model.encoder(side), model.preprocessor.query("how do bees find home")
    heavy = np.where(tokens.word_ids == 2, 100, tokens.weights).astype(np.float32)
    body = np.full_like(tokens.field_ids, 4)
    others = [
        replace(tokens, weights=heavy),
        *([replace(tokens, field_ids=body)] if side == "document" else []),
    ]
    for other in others:
        assert np.abs(encoder.encode([tokens]) - encoder.encode([other])).max() > 1e-4


def onnx_file(path: Path, inputs: Sequence[str], width: int | str) -> Path:
    onnx = pytest.importorskip("onnx", reason="making an ONNX file needs the `export` extra")
    helper, float_type = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, float_type, ["B", width]) for name in inputs]
    output = helper.make_tensor_value_info("vector", float_type, ["B", width])
    graph = helper.make_graph([helper.make_node("Sum", list(inputs), ["vector"])], "g", values, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_a_model_that_is_no_tower_is_refused(tmp_path: Path) -> None:
    towers = ("ids", "mask", "field_ids", "weights")
    assert Encoder(onnx_file(tmp_path / "fits.onnx", towers, 8)).dimensions == 8
    with pytest.raises(FormatError, match=r"other\.onnx is not a tower: found inputs \['input_ids'\]"):
        Encoder(onnx_file(tmp_path / "other.onnx", ["input_ids"], 8))
    with pytest.raises(FormatError, match="fixed width"):
        Encoder(onnx_file(tmp_path / "wide.onnx", towers, "D"))
