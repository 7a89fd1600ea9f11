"""Parity and precision: what passes, that NaN never does, and integer products that are close to float and never saturate."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import TensorNames
from glow.collection import read_documents
from glow.errors import ExportError
from glow.runtime import Model
from glow.text import WeightedTokens
from glow.training import read_towers
from glow_model_export import parity
from glow_model_export.package import Source, check_quality
from glow_model_export.parity import check_parity
from glow_model_export.quantize import MATRIX_LEVELS, quantize_columns, quantize_matrices

UNIT: NDArray[np.float32] = np.eye(3, 4, dtype=np.float32)
SIDES = ("torch", "float.onnx", "shipped.onnx")
Vectors = dict[str, NDArray[np.float32]]


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Vectors:
    """What each side gives for three texts; change it to break one."""
    found = {side: UNIT.copy() for side in SIDES}

    class Fixed:
        def __init__(self, path: Path, pad_id: int) -> None:
            self.encode = self.run = lambda sequences: found[path.name][: len(sequences)]

    monkeypatch.setattr(parity, "Encoder", Fixed)
    return found


def check(vectors: Vectors) -> parity.TowerParity:
    sequences: list[WeightedTokens] = [object()] * 3  # type: ignore[list-item]
    return check_parity(vectors["torch"], Path("float.onnx"), Path("shipped.onnx"), sequences, 0)


def test_equal_vectors_pass(vectors: Vectors) -> None:
    assert vectors.keys() == set(SIDES)
    found = check(vectors)
    assert (found.texts, found.max_difference, found.mean_cosine) == (3, 0.0, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (("shipped.onnx",), "1 from the shipped ONNX; expected finite"),
        (("float.onnx", "shipped.onnx"), "1 from float ONNX, 1 from the shipped ONNX"),
        (SIDES, "1 from torch, 1 from float ONNX, 1 from the shipped ONNX"),
    ],
)
def test_a_vector_that_is_not_finite_is_refused(
    vectors: Vectors, broken: tuple[str, ...], message: str, value: float
) -> None:
    """One text of three is enough, and the message says whose vectors they are."""
    for side in broken:
        vectors[side][1] = value
    with pytest.raises(ExportError, match=message):
        check(vectors)


@pytest.fixture
def data(toy_corpus: Path, tmp_path: Path) -> Path:
    """The toy corpus with a query for each of its first ten documents."""
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(toy_corpus.read_bytes())
    documents = list(read_documents(toy_corpus, ("title",)))[:10]
    queries = [
        {"_id": f"q{at}", "text": f"about {each.fields['title'][0]}"} for at, each in enumerate(documents)
    ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"q{at}\t{each.id}\t1" for at, each in enumerate(documents)]
    (folder / "qrels" / "dev.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8"
    )
    return folder


def test_quality_is_judged_on_the_texts_that_are_given(
    data: Path, toy_model: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.open(toy_model)
    config = read_towers(model).config
    source = Source(config, model.preprocessor, {}, {}, lambda name: onnx.load(toy_model / name))
    documents = list(read_documents(toy_corpus, model.preprocessor.schema.names))[:10]
    monkeypatch.setattr(parity, "_made_up", lambda *_: pytest.fail("words were drawn at random"))
    quality = check_quality(source, "none", data, "dev", ["about bees"], documents)
    assert (quality["data"], quality["queries"]) == ("data", 10)
    assert set(quality["nDCG@10"]) == {"none"}


RANDOM = np.random.default_rng(5)
MATRIX = (RANDOM.normal(size=(64, 32)) * np.exp(RANDOM.normal(size=32))).astype(np.float32)


def graph_of(node: NodeProto, columns: int, **weights: NDArray[np.float32]) -> ModelProto:
    """A graph of one node, from x [batch, length, rows of the first weight] to y [batch, length, columns]."""
    rows = len(next(iter(weights.values())))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", width])
        for name, width in (("x", rows), ("y", columns))
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "one node", ends[:1], ends[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(session: onnxruntime.InferenceSession, tokens: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(session.run(["y"], {"x": tokens.astype(np.float32)})[0])


@pytest.fixture(scope="module")
def product() -> onnxruntime.InferenceSession:
    """x·W in integers, as a tower would hold it."""
    name = "w" + TensorNames.TRANSPOSED
    model = graph_of(helper.make_node("MatMul", ["x", name], ["y"], "layer"), 32, **{name: MATRIX})
    return onnxruntime.InferenceSession(quantize_matrices(model, "int8").SerializeToString())


@settings(max_examples=30)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 1_000))
def test_a_product_is_as_close_as_its_codes_allow_whatever_the_scale(
    product: onnxruntime.InferenceSession, scale: float, seed: int
) -> None:
    tokens = np.random.default_rng(seed).normal(size=(2, 3, 64)).astype(np.float32) * np.float32(scale)
    expected = tokens @ MATRIX
    error = np.linalg.norm(run(product, tokens) - expected, axis=-1)
    assert (error <= 0.06 * np.linalg.norm(expected, axis=-1)).all()


def test_a_token_of_zeros_gives_zeros_and_harms_no_other(product: onnxruntime.InferenceSession) -> None:
    tokens = RANDOM.normal(size=(1, 3, 64)).astype(np.float32)
    alone = run(product, tokens[:, 2:])
    tokens[0, 1] = 0
    found = run(product, tokens)
    assert (found[0, 1] == 0).all()
    np.testing.assert_array_equal(found[:, 2:], alone)


def test_two_products_of_the_largest_codes_fit_in_sixteen_bits() -> None:
    """VPMADDUBSW adds two products of u8 and s8 in a saturating int16."""
    codes, scales = quantize_columns(MATRIX)
    assert np.abs(codes).max() == MATRIX_LEVELS
    assert 2 * 255 * MATRIX_LEVELS < 2**15
    np.testing.assert_allclose(codes * scales, MATRIX, atol=float(scales.max()) / 2 + 1e-7)
    codes, scales = quantize_columns(np.zeros((4, 2), np.float32))
    assert (codes == 0).all() and (scales > 0).all()
