"""Quantizes towers and stores their weights beside the graphs.

Plain dynamic quantization uses one activation scale per batch, so a query's vector depends on the other texts in
it. Here every token and every matrix output has its own scale: x·W ≈ s_x · s_W · (q_x·q_W).

Weights are ONNX external data. Storing the shared token embedding matrix once (`words.bin`) halves the model. Each tower's
other weights are in a file of its own, so that another graph of the same tower costs a few kilobytes.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import WORD_TABLE, TensorNames
from glow.errors import ExportError

Quantization = Literal["none", "int8", "fp16"]
MATRIX_LEVELS = 63
"""Largest weight code: CPUs without VNNI add two products in 16 bits, and 2 · 255 · 63 < 2¹⁵ never saturates."""
TOKEN_LEVELS, TOKEN_ZERO = 127, 128
_SCALE, _ZERO, _AXIS = "tokens.scale", "tokens.zero", "tokens.axis"
_ALIGNMENT = 4096  # a memory page, so that a runtime can map the data in place
_SMALL_BYTES = 8192  # biases and constants: shape inference reads them in the graph


def quantize_matrices(model: ModelProto, how: Quantization) -> ModelProto:
    """Quantizes a float32 tower's weight matrices; the graph may be changed.

    `int8` has 7 bits per weight and 8 per activation; with `fp16`, inputs and output stay float32.
    """
    if how == "int8":
        return _by_rows(model)
    if how == "fp16":
        with _own_logging():
            from onnxruntime.transformers.float16 import convert_float_to_float16

            model = convert_float_to_float16(model, keep_io_types=True)
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
    """x·W with x scaled to [-1, 1] token by token, and back; a token of zeros has arbitrary codes, and the scale 0."""
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


def quantize_rows(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 with one scale per row: table ≈ codes * scales[:, None]; float32 [V, H] in, scales > 0."""
    scales = np.maximum(np.abs(table).max(1), 1e-12).astype(np.float32) / np.float32(127)
    codes = np.rint(table / scales[:, None]).astype(np.int8)
    return codes, scales


def share_word_table(towers: dict[str, ModelProto], folder: Path, *, int8: bool) -> None:
    """Moves the shared token embedding matrix out of the towers' graphs into `words.bin`, in place; int8 has a scale per row."""
    tables = [numpy_helper.to_array(_tensor(model, TensorNames.TABLE)) for model in towers.values()]
    if any(not np.array_equal(tables[0], other) for other in tables[1:]):
        raise ExportError("the towers have different token embedding matrices; they must share one")
    parts: dict[str, NDArray[np.generic]] = {TensorNames.TABLE: tables[0]}
    if int8:
        codes, scales = quantize_rows(tables[0].astype(np.float32))
        parts = {TensorNames.TABLE: codes, TensorNames.row_scales(TensorNames.TABLE): scales}
    offsets = _write(folder / WORD_TABLE, parts)
    for model in towers.values():
        if int8:
            _gather_codes(model, TensorNames.TABLE)
        for name, array in parts.items():
            _make_external(_tensor(model, name), array, WORD_TABLE, offsets[name])


def move_weights(path: Path, *models: ModelProto) -> None:
    """Moves the weights of graphs, except the token embedding matrix, into a file beside them; shared ones are stored once."""
    parts: dict[str, NDArray[np.generic]] = {}
    places: list[tuple[TensorProto, NDArray[np.generic], str]] = []
    for model in models:
        for tensor in model.graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL or tensor.ByteSize() <= _SMALL_BYTES:
                continue
            array = np.ascontiguousarray(numpy_helper.to_array(tensor))
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            parts.setdefault(digest, array)
            places.append((tensor, array, digest))
    offsets = _write(path, parts)
    for tensor, array, digest in places:
        _make_external(tensor, array, path.name, offsets[digest])


def _write(path: Path, parts: dict[str, NDArray[np.generic]]) -> dict[str, int]:
    offsets = {}
    with path.open("wb") as file:
        for name, array in parts.items():
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            offsets[name] = file.tell()
            file.write(np.ascontiguousarray(array).tobytes())
    return offsets


def _gather_codes(model: ModelProto, table: str) -> None:
    """Gather(table) becomes Gather(codes) → Cast → Mul by Gather(scales)."""
    graph = model.graph
    position = next(
        index for index, node in enumerate(graph.node) if node.op_type == "Gather" and node.input[0] == table
    )
    gather = graph.node[position]
    ids, result = gather.input[1], gather.output[0]
    scales = TensorNames.row_scales(table)
    graph.initializer.append(TensorProto(name=scales, data_type=TensorProto.FLOAT))
    axis = numpy_helper.from_array(np.array([-1], np.int64), "words.axis")
    graph.initializer.append(axis)
    nodes = [
        helper.make_node("Gather", [table, ids], ["words.codes"]),
        helper.make_node("Cast", ["words.codes"], ["words.values"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [scales, ids], ["words.row_scale"]),
        helper.make_node("Unsqueeze", ["words.row_scale", "words.axis"], ["words.factor"]),
        helper.make_node("Mul", ["words.values", "words.factor"], [result]),
    ]
    graph.node.remove(gather)
    for step, node in enumerate(nodes):
        graph.node.insert(position + step, node)


def _make_external(tensor: TensorProto, array: NDArray[np.generic], file: str, offset: int) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.dims[:] = array.shape
    tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", file), ("offset", offset), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))


def _tensor(model: ModelProto, name: str) -> TensorProto:
    tensors = [tensor for tensor in model.graph.initializer if tensor.name == name]
    if len(tensors) != 1:
        raise ExportError(f"expected one initializer {name!r} in the graph, found {len(tensors)}")
    tensor: TensorProto = tensors[0]
    return tensor
