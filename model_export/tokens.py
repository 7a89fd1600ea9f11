"""Token vectors for late interaction, an output of both towers: the last layer's embeddings, projected to few numbers.

The exported graphs are edited, quantized or not, and refer to the same weights, so vectors are bit for bit the same.

    tokens = normalize(embeddings · projection), multiplied in the embeddings' precision

    B   batch       L   tokens      H   hidden size     P   numbers of a token
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TOKEN_PROJECTION
from glow.errors import ExportError
from glow.runtime import TOKENS, Encoder
from glow.text import WeightedTokens, batches_by_length

TOKEN_UNIT = 8
"""P is a multiple of it, so that the signs of P numbers fill whole bytes."""
_CHECKED_TEXTS = 16
_MAX_MOVE = 5e-3
"""Tolerance of a token's numbers for padding and other texts in the batch; fp16 is the coarsest."""
_TOWERS = (QUERY_TOWER, DOCUMENT_TOWER)
_PREFIX = "late."
_PROJECTION = f"{_PREFIX}projection"
Texts = Mapping[str, Sequence[WeightedTokens]]
"""A tower's file -> preprocessed texts, at least one each."""
TOKEN_SIZE = 128
"""Default P."""


def last_states(model: ModelProto) -> tuple[str, int]:
    """The name of the last layer's token embeddings [B, L, H] in a tower's graph, and their ONNX type."""
    graph = model.graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    layers = [int(name.split(".")[1]) for name in kinds if name.startswith("layers.")]
    bias = f"layers.{max(layers, default=-1)}.output_norm.bias"
    states: str | None = next((node.output[0] for node in graph.node if bias in node.input), None)
    if states is None:
        raise ExportError("the graph has no token embeddings; export the model again with this version")
    return states, kinds[bias]


def add_tokens(model: ModelProto, projection: NDArray[np.float32]) -> ModelProto:
    """Gives a tower's graph the output `tokens`, float32 [B, L, P]: last token embeddings, projected and L2-normalized, in place.

    The tower has any precision, its external data need not be loaded. The graph will contain the projection, float32 [H, P].
    """
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


class TokenProjection(NamedTuple):
    """The projection of both towers' token embeddings."""

    matrix: NDArray[np.float32]  # [H, P], orthonormal columns, the longest direction first
    kept: float  # fraction of the normalized embeddings' squared length that it keeps, in [0, 1]


def fit_projection(folder: Path, texts: Texts, size: int, pad_id: int) -> TokenProjection:
    """Fits the directions of largest uncentered second moment of normalized token embeddings, with equally weighted towers.

    `folder` holds both towers with their weights; towers of fewer than P = `size` numbers get the largest size that they support.
    """
    moments = [_second_moment(folder / tower, texts[tower], pad_id) for tower in _TOWERS]
    moment = np.mean(moments, axis=0)
    if not np.isfinite(moment).all():
        raise ExportError("the towers' last token embeddings are not finite; the model is broken")
    size = min(size, len(moment) // TOKEN_UNIT * TOKEN_UNIT)
    if size < TOKEN_UNIT:
        raise ExportError(
            f"tokens need a hidden size of {TOKEN_UNIT} at least, found {len(moment)}; export with --token-size 0"
        )
    lengths, directions = np.linalg.eigh(moment)
    columns = directions[:, ::-1][:, :size]
    # The sign of a direction is arbitrary: the number with the largest magnitude becomes positive.
    largest = np.take_along_axis(columns, np.abs(columns).argmax(0)[None], axis=0)
    kept = float(lengths[::-1][:size].sum() / lengths.sum())
    return TokenProjection(np.ascontiguousarray(columns * np.sign(largest), np.float32), kept)


def _second_moment(tower: Path, sequences: Sequence[WeightedTokens], pad_id: int) -> NDArray[np.float64]:
    """Mean outer product of normalized token embeddings, float64 [H, H]."""
    graph = onnx.load(tower, load_external_data=False)
    hidden = graph.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    whole = np.eye(hidden, -(-hidden // TOKEN_UNIT) * TOKEN_UNIT, dtype=np.float32)
    total, count = np.zeros((hidden, hidden)), 0
    with tempfile.NamedTemporaryFile(dir=tower.parent, prefix=".", suffix=".onnx") as file:
        file.write(add_tokens(graph, whole).SerializeToString())
        file.flush()
        encoder = Encoder(Path(file.name), pad_id)
        for rows in batches_by_length([len(each) for each in sequences], encoder.batch_tokens):
            _, tokens = encoder.run_tokens([sequences[row] for row in rows])
            for row, embeddings in zip(rows, tokens, strict=True):
                states = embeddings[: len(sequences[row]), :hidden].astype(np.float64)
                total += states.T @ states
                count += len(states)
    return total / count


def read_projection(folder: Path, hidden: int) -> NDArray[np.float32] | None:
    """The projection of a verified model of H = `hidden`, float32 [H, P]; None if its towers have no tokens."""
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
    """Gives the towers of an unfinished model the output `tokens`, and writes the projection, float32 [H, P], beside them.

    Refuses graphs whose other outputs change, or whose tokens depend on padding or do not have length 1.
    """
    few = {name: texts[name][:_CHECKED_TEXTS] for name in _TOWERS}
    expected = {name: Encoder(folder / name, pad_id).run(few[name]) for name in _TOWERS}
    (folder / TOKEN_PROJECTION).write_bytes(np.ascontiguousarray(projection, np.float32).tobytes())
    for name in _TOWERS:
        model = add_tokens(onnx.load(folder / name, load_external_data=False), projection)
        tensor = next(each for each in model.graph.initializer if each.name == _PROJECTION)
        set_external_data(tensor, TOKEN_PROJECTION, 0, len(tensor.raw_data))
        tensor.ClearField("raw_data")
        onnx.save(model, folder / name)
        _check(folder / name, expected[name], few[name], pad_id)


def _check(path: Path, before: NDArray[np.float32], few: Sequence[WeightedTokens], pad_id: int) -> None:
    encoder = Encoder(path, pad_id)
    after, tokens = encoder.run_tokens(few)
    if not np.array_equal(before, after):
        raise ExportError(
            f"{path.name}: with tokens, its vectors differ by up to {np.abs(before - after).max():.1e}"
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
