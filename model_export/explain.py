"""Explain graphs: the exported towers with the last layer's attention as a second output.

They are made from the exported graphs, quantized or not, and refer to the same weights. So vectors are bit for bit those
of the plain tower, and a second graph costs kilobytes. The output is the attention that each token gets from [CLS] in
the last layer, averaged over heads; GLOW's Table 4 has another measure.

    B   batch       n   heads       L   tokens
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import (
    EXPLAIN_TOWERS,
    MANIFEST_FILE,
    FileRecord,
    Manifest,
    file_sha256,
    model_hash,
    sync,
    verify,
)
from glow.errors import ExportError
from glow.runtime import ATTENTION, AttentionEncoder, Encoder
from glow.text import WeightedTokens, load_preprocessor
from glow_model_export.parity import parity_texts

__all__ = ["add_attention", "add_explain", "add_files", "write_explain"]

_MAX_ERROR = 1e-3
"""Tolerance of an attention row's sum, which is 1; fp16 is the coarsest."""
_CHECKED_TEXTS = 16


def add_explain(folder: Path) -> int:
    """Adds the explain graphs to an existing model; its weights, graphs and model hash stay unchanged.

    Args:
        folder: a model.

    Returns:
        Size of the two graphs in bytes.

    Raises:
        ArtifactError: if it is missing, damaged, or not a model.
        ExportError: if a graph is not a known tower, or does not give the plain tower's vectors.
    """
    manifest = verify(folder, "model")
    preprocessor = load_preprocessor(folder)
    names = write_explain(folder, parity_texts(preprocessor), preprocessor.pieces.pad_id)
    add_files(folder, manifest, names)
    return sum((folder / name).stat().st_size for name in names)


def add_files(folder: Path, manifest: Manifest, names: Sequence[str]) -> None:
    """Adds files in a model's directory to its manifest; the model hash must not change.

    Args:
        folder: directory of the model.
        manifest: its present manifest.
        names: names of the files.

    Raises:
        ExportError: if the model hash depends on one of them.
    """
    digest = model_hash(manifest.files)
    records = {
        name: FileRecord(size_bytes=(folder / name).stat().st_size, sha256=file_sha256(folder / name))
        for name in names
    }
    changed = manifest.model_copy(update={"files": dict(sorted({**manifest.files, **records}.items()))})
    if model_hash(changed.files) != digest:
        raise ExportError(f"{folder.name}: its model hash would change; nothing was changed in its manifest")
    # Files that the manifest does not name are not part of the model, so it is never half changed.
    temporary = folder / f".{MANIFEST_FILE}"
    temporary.write_bytes(changed.to_bytes())
    for path in (*(folder / name for name in names), temporary):
        sync(path)
    temporary.replace(folder / MANIFEST_FILE)
    sync(folder)


def write_explain(folder: Path, texts: Mapping[str, Sequence[WeightedTokens]], pad_id: int) -> list[str]:
    """Writes the explain graph of each tower beside it and checks that its vectors are equal.

    Args:
        folder: directory of both towers with their weights.
        texts: tower's file -> preprocessed texts for the check, at least one each.
        pad_id: padding id of the vocabulary.

    Returns:
        The names of the files.

    Raises:
        ExportError: if a graph is not a known tower, or does not give the plain tower's vectors.
    """
    for tower, name in EXPLAIN_TOWERS.items():
        onnx.save(add_attention(onnx.load(folder / tower, load_external_data=False)), folder / name)
        _check(folder / tower, folder / name, texts[tower][:_CHECKED_TEXTS], pad_id)
    return list(EXPLAIN_TOWERS.values())


def add_attention(model: ModelProto) -> ModelProto:
    """Gives a tower's graph the output `attention`, float32 [B, L]: row 0 of the last softmax, mean over heads.

    Args:
        model: a tower in any precision, changed in place; its external data need not be loaded.

    Raises:
        ExportError: if no softmax feeds a product, as in attention.
    """
    graph = model.graph
    readers = {name: node for node in graph.node for name in node.input}
    softmaxes = [node for node in graph.node if node.op_type == "Softmax" and node.output[0] in readers]
    if not softmaxes:
        raise ExportError("the graph has no attention softmax; export the model again with this version")
    constants = {f"{ATTENTION}.first": np.array(0, np.int64), f"{ATTENTION}.heads": np.array([1], np.int64)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.extend(_steps(softmaxes[-1].output[0]))
    shape = [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim]
    graph.output.append(helper.make_tensor_value_info(ATTENTION, TensorProto.FLOAT, shape))
    return model


def _steps(probabilities: str) -> list[NodeProto]:
    """[B, n, L, L] -> the row of [CLS], [B, n, L] -> mean over heads, [B, L]."""
    first, row, whole = f"{ATTENTION}.first", f"{ATTENTION}.row", f"{ATTENTION}.float"

    def step(kind: str, inputs: list[str], out: str, **attributes: Any) -> NodeProto:
        return helper.make_node(kind, inputs, [out], f"{out}.{kind}", **attributes)

    return [
        step("Gather", [probabilities, first], row, axis=2),
        step("Cast", [row], whole, to=TensorProto.FLOAT),
        step("ReduceMean", [whole, f"{ATTENTION}.heads"], ATTENTION, keepdims=0),
    ]


def _check(plain: Path, explained: Path, sequences: Sequence[WeightedTokens], pad_id: int) -> None:
    expected = Encoder(plain, pad_id).run(sequences)
    vectors, attention = AttentionEncoder(explained, pad_id).run(sequences)
    if not np.array_equal(vectors, expected):
        difference = float(np.abs(vectors - expected).max())
        raise ExportError(
            f"{explained.name} gives other vectors than {plain.name}, by up to {difference:.1e}"
        )
    error = float(np.abs(attention.sum(1) - 1.0).max())
    if not error < _MAX_ERROR:
        raise ExportError(f"{explained.name}: attention of a text sums to 1 only within {error:.1e}")
