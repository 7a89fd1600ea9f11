"""Integer products: close to float, never saturated, and a token of zeros is no accident."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from glow.artifact import TensorNames
from glow_model_export.quantize import MATRIX_LEVELS, quantize_columns, quantize_matrices, spread_norms

RANDOM = np.random.default_rng(5)
MATRIX = (RANDOM.normal(size=(64, 32)) * np.exp(RANDOM.normal(size=32))).astype(np.float32)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> onnxruntime.InferenceSession:
    """x·W in integers, as a tower would hold it."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w" + TensorNames.TRANSPOSED], ["y"], "layer")],
        "one product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 32])],
        [numpy_helper.from_array(MATRIX, "w" + TensorNames.TRANSPOSED)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path: Path = tmp_path_factory.mktemp("product") / "product.onnx"
    path.write_bytes(quantize_matrices(model, "int8").SerializeToString())
    return onnxruntime.InferenceSession(path)


def run(product: onnxruntime.InferenceSession, tokens: np.ndarray) -> np.ndarray:
    return np.asarray(product.run(["y"], {"x": tokens.astype(np.float32)})[0])


@settings(max_examples=30, deadline=None)
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


def test_columns_of_zeros_keep_a_scale() -> None:
    codes, scales = quantize_columns(np.zeros((4, 2), np.float32))
    assert (codes == 0).all()
    assert (scales > 0).all()


def test_norms_in_plain_steps_are_the_same_norms(tmp_path: Path) -> None:
    gain, bias = (RANDOM.normal(size=48).astype(np.float32) for _ in range(2))
    names = ["layers.0.norm.weight", "layers.0.norm.bias"]
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", ["x", *names], ["y"], "norm", epsilon=1e-5)],
        "one norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 48])],
        [numpy_helper.from_array(value, name) for value, name in zip((gain, bias), names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    tokens = RANDOM.normal(size=(2, 5, 48)).astype(np.float32) * 3 + 1
    tokens[1, 3] = 2.5  # a constant token has no direction; epsilon keeps it finite
    found = []
    for form in (model, spread_norms(type(model).FromString(model.SerializeToString()))):
        (tmp_path / "norm.onnx").write_bytes(form.SerializeToString())
        session = onnxruntime.InferenceSession(tmp_path / "norm.onnx")
        found.append(np.asarray(session.run(["y"], {"x": tokens})[0]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
