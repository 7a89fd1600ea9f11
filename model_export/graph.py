"""Exports a tower of torch as an ONNX graph whose initializers have the names of the tower's parameters.

`torch.onnx` keeps parameter names except those of matrices, which it transposes and renames. Here they become
`NAME.weight^T`, so that a tower can be read back into torch (`glow.training.checkpoint`).
"""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto
from torch import Tensor, nn
from torch.export import Dim

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TensorNames
from glow.errors import ExportError
from glow.nn import Tower, TwoTowers
from glow.text import Preprocessor, WeightedTokens, batches_by_length, pad
from glow_model_export.foreign_graph import INPUTS, OUTPUT
from glow_model_export.package import Source

_EXAMPLE = (3, 7)
MAX_BATCH = 65_536
_BATCH_TOKENS = 4096
Shape = Mapping[int, Dim | None]
"""Axis of an input -> its dynamic dimension."""


def torch_source(
    towers: TwoTowers, preprocessor: Preprocessor, report: Mapping[str, Any], parent: Mapping[str, Any]
) -> Source:
    """Towers in evaluation mode as the input of an export; they are traced once."""
    named = {QUERY_TOWER: towers.query, DOCUMENT_TOWER: towers.document}
    traced: dict[str, ModelProto] = {}

    def graph(name: str) -> ModelProto:
        if name not in traced:
            traced[name] = export_graph(named[name])
        copied = ModelProto()
        copied.CopyFrom(traced[name])
        return copied

    def vectors(name: str, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        return torch_vectors(named[name], sequences, preprocessor.pieces.pad_id)

    return Source(towers.config, preprocessor, report, parent, graph, vectors)


def torch_vectors(tower: Tower, sequences: Sequence[WeightedTokens], pad_id: int) -> NDArray[np.float32]:
    """Vectors of a torch tower in fp32, float32 [n, D]."""
    vectors: NDArray[np.float32] | None = None
    with torch.inference_mode():
        for rows in batches_by_length([len(sequence) for sequence in sequences], _BATCH_TOKENS):
            batch = pad([sequences[row] for row in rows], pad_id)
            arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
            block = tower(*(torch.from_numpy(array) for array in arrays)).numpy()
            if vectors is None:
                vectors = np.empty((len(sequences), block.shape[1]), np.float32)
            vectors[rows] = block
    if vectors is None:
        raise ExportError("parity needs at least one text")
    return vectors


def export_graph(tower: Tower) -> ModelProto:
    """Exports a tower, in evaluation mode and float32 on the CPU, with dynamic batch and length, pooling and normalization.

    Inputs are `ids`, `mask`, `field_ids` int64 [batch, length] and `weights` float32 [batch, length]; the output is `vector`,
    float32 [batch, H].
    """
    ids = torch.ones(_EXAMPLE, dtype=torch.int64)
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids), torch.ones(_EXAMPLE))
    batch = Dim("batch", min=1, max=MAX_BATCH)
    length = Dim("length", min=2, max=tower.max_tokens)
    return trace(tower, example, INPUTS, (OUTPUT,), [{0: batch, 1: length} for _ in INPUTS])


def trace(
    module: nn.Module,
    example: Sequence[Tensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Sequence[Shape],
) -> ModelProto:
    """Exports a module whose products all have a bias, as a graph whose initializers have the module's parameter names.

    The module is in evaluation mode, float32 on the CPU; `shapes` are the dynamic dimensions of each input.
    """
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            tuple(part.clone() for part in example),  # one tensor given twice would become one input
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=tuple(dict(shape) for shape in shapes),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise ExportError("torch.onnx.export returned no program")
    graph: ModelProto = program.model_proto
    _check_parameters(graph, module)
    _name_matrices(graph)
    _strip_notes(graph)
    onnx.checker.check_model(graph)
    return graph


@contextmanager
def _quiet() -> Iterator[None]:
    """Mutes the exporter, which logs every step and warns of missing torchvision and of shared axis names."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "onnx_ir", "torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _check_parameters(model: ModelProto, module: nn.Module) -> None:
    """Refuses parameters that the exporter merged because they are equal, which occurs only before training."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    parameters = {name for name, each in module.named_parameters() if each.ndim != 2}
    if not parameters <= initializers:
        raise ExportError(
            f"the exporter merged {', '.join(sorted(parameters - initializers)[:3])} with equal parameters; "
            "weights can be exported after training, or if they come from a pre-trained encoder"
        )


def _name_matrices(model: ModelProto) -> None:
    """Names each weight matrix, and the MatMul that reads it, after the bias that follows.

    A module that is used twice has two products; the exporter may have transposed its matrix for each.
    """
    initialisers = {tensor.name: tensor for tensor in model.graph.initializer}
    readers = {name: node for node in model.graph.node for name in node.input}
    uses: Counter[str] = Counter()
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in initialisers:
            continue
        add = readers[node.output[0]]
        biases = [name for name in add.input if name.endswith(".bias")]
        if add.op_type != "Add" or len(biases) != 1:
            raise ExportError(f"expected a bias after matrix {node.input[1]}, found {add.op_type}")
        module = biases[0].removesuffix(".bias")
        name = f"{module}.weight{TensorNames.TRANSPOSED}"
        tensor = initialisers[node.input[1]]
        if tensor.name != name and name in {other.name for other in model.graph.initializer}:
            model.graph.initializer.remove(tensor)
        else:
            tensor.name = name
        node.input[1] = name
        uses[module] += 1
        node.name = module if uses[module] == 1 else f"{module}.{uses[module]}"


def _strip_notes(model: ModelProto) -> None:
    """Drops the exporter's notes: source lines with paths of the exporting machine."""
    del model.metadata_props[:]
    model.doc_string = ""
    model.producer_name, model.producer_version = "glow", ""
    del model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del value.metadata_props[:]
        value.doc_string = ""
