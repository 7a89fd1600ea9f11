"""A vector depends only on its own tokens, not on other texts of the batch, padding or order."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from glow.errors import FormatError
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens
from glow.text.preprocessor import pad

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
    """However much of it there is, and whatever ids and weights lie under the mask."""
    content = {"ids": 5, "mask": 0, "field_ids": 0, "weights": weight}
    for sequence in sequences:
        for extra in (1, 15):
            if len(sequence) + extra <= 24:
                padded = run_padded(encoder, sequence, extra, content.__getitem__)
                assert padded == pytest.approx(encoder.encode([sequence]), abs=1e-5)


def test_no_sequence_gives_no_vector(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimensions)


def test_weights_change_a_vector(model: Model) -> None:
    """The towers read them: a model whose weights were dropped on the way would pass every other test here."""
    encoder, tokens = model.encoder("query"), model.preprocessor.query("how do bees find home")
    heavy = np.where(tokens.word_ids == 2, 100, tokens.weights).astype(np.float32)
    other = WeightedTokens(tokens.ids, tokens.field_ids, tokens.word_ids, heavy, tokens.words, {})
    assert np.abs(encoder.encode([tokens]) - encoder.encode([other])).max() > 1e-4


def test_field_ids_change_a_document(model: Model) -> None:
    encoder, tokens = model.encoder("document"), model.preprocessor.query("how do bees find home")
    body = WeightedTokens(
        tokens.ids, np.full_like(tokens.field_ids, 4), tokens.word_ids, tokens.weights, tokens.words, {}
    )
    assert np.abs(encoder.encode([tokens]) - encoder.encode([body])).max() > 1e-4


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
