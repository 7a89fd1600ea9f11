"""Stores the towers' weights beside their graphs, as ONNX external data.

The towers share only their token embedding matrix. Storing it once (`words.bin`) halves the model, and all serving
processes map the same pages. Each tower's other weights are in a separate file, so that another graph of the same
tower costs a few kilobytes.
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from glow.artifact import WORD_TABLE, TensorNames
from glow.errors import ExportError

__all__ = ["move_weights", "quantize_rows", "share_word_table"]

_ALIGNMENT = 4096  # a memory page, so that a runtime can map the data in place
_SMALL_BYTES = 8192  # biases and constants: shape inference reads them in the graph


def quantize_rows(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 with one scale per row: table ≈ codes * scales[:, None]; float32 [V, H] in, scales > 0."""
    scales = np.maximum(np.abs(table).max(1), 1e-12).astype(np.float32) / np.float32(127)
    codes = np.rint(table / scales[:, None]).astype(np.int8)
    return codes, scales


def share_word_table(towers: dict[str, ModelProto], folder: Path, *, int8: bool) -> None:
    """Moves the token embedding matrix out of the towers' graphs into `words.bin`.

    Args:
        towers: file name -> graph, changed in place; all hold the same table.
        folder: directory of `words.bin`.
        int8: store int8 rows with a scale each; the graphs then gather codes and scales and multiply.

    Raises:
        ExportError: if the towers' matrices differ.
    """
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
    """Moves the weights of one or more graphs into a file beside them; shared ones are stored once.

    Args:
        path: the file to write.
        models: changed in place; the token embedding matrix has been moved before.
    """
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
