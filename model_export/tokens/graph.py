"""Adds token vectors for late interaction to both towers: the last layer's embeddings, projected to few numbers.

The exported graphs are edited, quantized or not, and refer to the same weights, so vectors are bit for bit the same.

    tokens = normalize(embeddings · projection), multiplied in the embeddings' precision

    B   batch       L   tokens      H   hidden size     P   numbers of a token
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TERMS_TOWER, TOKEN_PROJECTION
from glow.errors import ExportError
from glow.runtime import TOKENS, Encoder
from glow.text import WeightedTokens

__all__ = [
    "TOKEN_UNIT",
    "Texts",
    "add_tokens",
    "last_states",
    "read_projection",
    "remove_tokens",
    "write_tokens",
]

TOKEN_UNIT = 8
"""P is a multiple of it, so that the signs of P numbers fill whole bytes."""
_CHECKED_TEXTS = 16
_MAX_MOVE = 5e-3
"""Tolerance of a token's numbers for padding and other texts in the batch; fp16 is the coarsest."""
_GRAPHS = (QUERY_TOWER, DOCUMENT_TOWER, TERMS_TOWER)
_PREFIX = "late."
_PROJECTION = f"{_PREFIX}projection"
Texts = Mapping[str, Sequence[WeightedTokens]]
"""A tower's file -> preprocessed texts, at least one each."""


def last_states(model: ModelProto) -> tuple[str, int]:
    """The name of the last layer's token embeddings [B, L, H] in a tower's graph, and their ONNX type.

    Raises:
        ExportError: if they are not found.
    """
    graph = model.graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    layers = [int(name.split(".")[1]) for name in kinds if name.startswith("layers.")]
    bias = f"layers.{max(layers, default=-1)}.output_norm.bias"
    states: str | None = next((node.output[0] for node in graph.node if bias in node.input), None)
    if states is None:
        raise ExportError("the graph has no token embeddings; export the model again with this version")
    return states, kinds[bias]


def add_tokens(model: ModelProto, projection: NDArray[np.float32]) -> ModelProto:
    """Gives a tower's graph the output `tokens`, float32 [B, L, P]: last token embeddings, projected and L2-normalized.

    Args:
        model: a tower in any precision, changed in place; its external data need not be loaded.
        projection: float32 [H, P], which the graph will contain.

    Raises:
        ExportError: if the last layer's token embeddings are not found.
    """
    remove_tokens(model)
    graph, (states, kind) = model.graph, last_states(model)
    constants: dict[str, NDArray[Any]] = {
        _PROJECTION: np.ascontiguousarray(projection, np.float32),
        f"{_PREFIX}axis": np.array([-1], np.int64),
        f"{_PREFIX}least": np.array(1e-12, np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.extend(_steps(states, kind))
    shape = [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim]
    graph.output.append(
        helper.make_tensor_value_info(TOKENS, TensorProto.FLOAT, [*shape, projection.shape[1]])
    )
    return model


def _steps(states: str, kind: int) -> list[NodeProto]:
    """Uses operations that CUDA supports; `LpNormalization` would need the CPU."""

    def step(operation: str, inputs: list[str], out: str, **attributes: Any) -> NodeProto:
        return helper.make_node(operation, inputs, [out], f"{_PREFIX}{out}", **attributes)

    product, length, divisor = (f"{_PREFIX}{name}" for name in ("product", "length", "divisor"))
    steps = [
        step("ReduceL2", [product, f"{_PREFIX}axis"], length, keepdims=1),
        step("Clip", [length, f"{_PREFIX}least"], divisor),
        step("Div", [product, divisor], TOKENS),
    ]
    if kind == TensorProto.FLOAT:
        return [step("MatMul", [states, _PROJECTION], product), *steps]
    # In the embeddings' precision: another one would change how a CPU rounds them for the vector.
    half, found = f"{_PREFIX}half", f"{_PREFIX}found"
    return [
        step("Cast", [_PROJECTION], half, to=kind),
        step("MatMul", [states, half], found),
        step("Cast", [found], product, to=TensorProto.FLOAT),
        *steps,
    ]


def remove_tokens(model: ModelProto) -> None:
    """Removes what `add_tokens` added, in place."""
    graph = model.graph
    for items in (graph.node, graph.initializer, graph.output):
        kept = [item for item in items if item.name != TOKENS and not item.name.startswith(_PREFIX)]
        del items[:]
        items.extend(kept)


def read_projection(folder: Path, hidden: int) -> NDArray[np.float32] | None:
    """The projection of a verified model, float32 [H, P]; None if its towers have no tokens.

    Args:
        folder: directory of the model.
        hidden: H.

    Raises:
        ExportError: if the file does not have H rows.
    """
    path = folder / TOKEN_PROJECTION
    if not path.is_file():
        return None
    numbers = np.fromfile(path, np.float32)
    if numbers.size == 0 or numbers.size % (hidden * TOKEN_UNIT):
        raise ExportError(
            f"{path.name} holds {numbers.size} numbers, expected a multiple of {hidden * TOKEN_UNIT}"
        )
    return numbers.reshape(hidden, -1)


def write_tokens(folder: Path, projection: NDArray[np.float32], texts: Texts, pad_id: int) -> None:
    """Gives the graphs of an unfinished model the output `tokens`, and writes the projection beside them.

    Args:
        folder: directory of both towers with their weights, perhaps also `document-terms.onnx`; graphs are replaced.
        projection: float32 [H, P].
        texts: texts for the check.
        pad_id: padding id of the vocabulary.

    Raises:
        ExportError: if a graph is not a known tower, its other outputs change, or its tokens depend on padding or
            do not have length 1.
    """
    expected: dict[str, dict[str, NDArray[np.float32]]] = {}
    few = {
        name: texts[QUERY_TOWER if name == QUERY_TOWER else DOCUMENT_TOWER][:_CHECKED_TEXTS]
        for name in _GRAPHS
    }
    for name in _GRAPHS:
        if (folder / name).is_file():
            before = Encoder(folder / name, pad_id)
            kept = [output for output in before.outputs if output != TOKENS]
            expected[name] = dict(zip(kept, before.run_outputs(few[name], kept), strict=True))
    (folder / TOKEN_PROJECTION).unlink(missing_ok=True)  # a session may have mapped the file
    (folder / TOKEN_PROJECTION).write_bytes(np.ascontiguousarray(projection, np.float32).tobytes())
    for name, outputs in expected.items():
        model = add_tokens(onnx.load(folder / name, load_external_data=False), projection)
        tensor = next(each for each in model.graph.initializer if each.name == _PROJECTION)
        set_external_data(tensor, TOKEN_PROJECTION, 0, len(tensor.raw_data))
        tensor.ClearField("raw_data")
        onnx.save(model, folder / name)
        _check(folder / name, outputs, few[name], pad_id)


def _check(
    path: Path, expected: Mapping[str, NDArray[np.float32]], few: Sequence[WeightedTokens], pad_id: int
) -> None:
    encoder = Encoder(path, pad_id)
    *found, tokens = encoder.run_outputs(few, [*expected, TOKENS])
    for (name, before), after in zip(expected.items(), found, strict=True):
        if not np.array_equal(before, after):
            difference = float(np.abs(before - after).max())
            raise ExportError(
                f"{path.name}: with tokens, its output {name!r} differs by up to {difference:.1e}"
            )
    error = float(np.abs(np.linalg.norm(tokens, axis=-1) - 1.0).max())
    if not error < 1e-4:
        raise ExportError(f"{path.name}: tokens have length 1 only within {error:.1e}")
    moved = max(
        float(np.abs(encoder.run_tokens([each])[1][0] - row[: len(each)]).max())
        for each, row in zip(few, tokens, strict=True)
    )
    if not moved < _MAX_MOVE:
        raise ExportError(f"{path.name}: padding moves tokens by up to {moved:.1e}")
