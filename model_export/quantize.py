"""Quantizes towers: 8-bit products whose scales do not depend on the rest of the batch, or half precision.

Plain dynamic quantization uses one activation scale per batch, so a query's vector depends on the other texts in
it. Here every token and every matrix output has its own scale: x·W ≈ s_x · s_W · (q_x·q_W).
docs/results/serving.md has the comparison.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import TensorNames
from glow_model_export.norms import spread_norms

__all__ = ["Quantization", "quantize_columns", "quantize_matrices"]

Quantization = Literal["none", "int8", "fp16"]
MATRIX_LEVELS = 63
"""Largest weight code: CPUs without VNNI add two products in 16 bits, and 2 · 255 · 63 < 2¹⁵ never saturates."""
TOKEN_LEVELS, TOKEN_ZERO = 127, 128
_SCALE, _ZERO, _AXIS = "tokens.scale", "tokens.zero", "tokens.axis"


def quantize_matrices(model: ModelProto, how: Quantization) -> ModelProto:
    """Quantizes the weight matrices of a tower.

    Args:
        model: float32 tower; `word_table` quantizes its token embedding matrix.
        how: `none`, `int8` (7 bits per weight, 8 per activation), or `fp16` (inputs and output stay float32).

    Returns:
        The quantized model; the input may be changed.
    """
    if how == "int8":
        return spread_norms(_by_rows(model))
    if how == "fp16":
        return _half(model)
    return model


def quantize_columns(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric codes of 7 bits with one scale per column: matrix ≈ codes * scales; float32 [in, out], scales > 0."""
    scales = np.maximum(np.abs(matrix).max(0), 1e-12).astype(np.float32) / np.float32(MATRIX_LEVELS)
    return np.rint(matrix / scales).astype(np.int8), scales


def _by_rows(model: ModelProto) -> ModelProto:
    """Converts every product with a matrix to 8-bit integers."""
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    constants: dict[str, NDArray[Any]] = {
        _SCALE: np.array(1 / TOKEN_LEVELS, np.float32),
        _ZERO: np.array(TOKEN_ZERO, np.uint8),
        _AXIS: np.array([-1], np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1].endswith(TensorNames.TRANSPOSED):
            nodes += _product(node)
            if (matrix := tensors.pop(node.input[1], None)) is not None:  # a module may be used twice
                _replace(graph.initializer, matrix)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    if not any(opset.domain == "com.microsoft" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def _product(node: NodeProto) -> list[NodeProto]:
    """x·W with x scaled to [-1, 1] token by token, and scaled back after the product.

    A token of zeros is divided by zero; its arbitrary codes are then multiplied by its scale, 0.
    """
    (tokens, matrix), name = node.input, node.name

    def step(kind: str, inputs: list[str], out: str, **attributes: Any) -> NodeProto:
        return helper.make_node(kind, inputs, [out], f"{name}.{kind}", **attributes)

    codes = [f"{name}.tokens", matrix + TensorNames.CODES, _SCALE, matrix + TensorNames.MATRIX_SCALES, _ZERO]
    return [
        step("Abs", [tokens], f"{name}.absolute"),
        step("ReduceMax", [f"{name}.absolute", _AXIS], f"{name}.largest", keepdims=1),
        step("Div", [tokens, f"{name}.largest"], f"{name}.shares"),
        step("QuantizeLinear", [f"{name}.shares", _SCALE, _ZERO], f"{name}.tokens"),
        step("MatMulIntegerToFloat", codes, f"{name}.product", domain="com.microsoft"),
        step("Mul", [f"{name}.product", f"{name}.largest"], node.output[0]),
    ]


def _replace(tensors: list[TensorProto], matrix: TensorProto) -> None:
    codes, scales = quantize_columns(numpy_helper.to_array(matrix))
    tensors.remove(matrix)
    tensors.append(numpy_helper.from_array(codes, matrix.name + TensorNames.CODES))
    tensors.append(numpy_helper.from_array(scales, matrix.name + TensorNames.MATRIX_SCALES))


def _half(model: ModelProto) -> ModelProto:
    with _own_logging():
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half: ModelProto = convert_float_to_float16(model, keep_io_types=True)
    return half


@contextmanager
def _own_logging() -> Iterator[None]:
    """Restores the logging setup that importing the quantization tool changes, and mutes the tool."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        root.handlers[:] = handlers
        root.setLevel(level)
