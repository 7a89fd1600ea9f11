"""A further output of exported towers, in a graph of its own over the same weights: directions of tokens, for learned impacts.

B   batch       n   heads       L   tokens      D   hidden size     K   dimensions of a direction
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from glow.artifact import (
    DOCUMENT_TOWER,
    LEARNED_HEAD,
    TERMS_TOWER,
    file_records,
    learned_hash,
    model_hash,
    verify,
    write_artifact,
)
from glow.errors import ExportError, MismatchError
from glow.nn import MEAN_IDF, TermImpacts
from glow.runtime import TERMS, VECTOR, Encoder, LearnedHead
from glow.text import load_preprocessor
from glow.training import load_impacts
from glow_model_export.parity import parity_texts

_CHECKED_TEXTS = 16
_TOKEN, _BIAS = "learned.token.weight", "learned.token.bias"


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


def add_head(folder: Path, checkpoint: Path, out: Path, *, replace: bool = False) -> dict[str, Any]:
    """Writes a model again with a head of learned impacts that was trained for it; its model hash stays the same.

    Returns the model's name, the head's hash, its size in bytes and the report of its training.
    """
    manifest = verify(folder, "model")
    trained = load_impacts(checkpoint)
    if trained.model != model_hash(manifest.files):
        raise MismatchError(
            f"{checkpoint.name} was trained for a model of hash {trained.model[:8]}, {folder.name} has "
            f"{model_hash(manifest.files)[:8]}; train a head for this one"
        )
    with write_artifact(out, "model", replace=replace) as writer:
        for name in manifest.files:
            if name not in (TERMS_TOWER, LEARNED_HEAD):
                (writer.folder / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(folder / name, writer.folder / name)
        graph = onnx.load(folder / DOCUMENT_TOWER, load_external_data=False)
        onnx.save(add_terms(graph, trained.head), writer.folder / TERMS_TOWER)
        learned_head(trained.head, trained.priors).save(writer.folder / LEARNED_HEAD)
        _check_terms(writer.folder)
        writer.hashes, writer.counts = dict(manifest.hashes), dict(manifest.counts)
        writer.parents, writer.parameters = dict(manifest.parents), dict(manifest.parameters)
        files = file_records(writer.folder)
    size = sum(files[name].size_bytes for name in (TERMS_TOWER, LEARNED_HEAD))
    training = dict(trained.report)
    return {"model": out.name, "learned": learned_hash(files), "bytes": size, "training": training}


def add_terms(model: ModelProto, head: TermImpacts) -> ModelProto:
    """Gives a document tower's graph the output `terms`, float32 [B, L, K], in place: L2-normalized directions of its tokens."""
    graph, (states, _) = model.graph, last_states(model)
    weights = {_TOKEN: head.token.weight.detach().numpy().T, _BIAS: head.token.bias.detach().numpy()}
    for name, value in weights.items():
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Cast", [states], "learned.states", {"to": TensorProto.FLOAT}),
        ("MatMul", ["learned.states", _TOKEN], "learned.product", {}),
        ("Add", ["learned.product", _BIAS], "learned.token", {}),
        ("LpNormalization", ["learned.token"], TERMS, {"axis": -1, "p": 2}),
    ]
    for kind, inputs, out, attributes in steps:
        graph.node.append(helper.make_node(kind, inputs, [out], f"{out}.{kind}", **attributes))
    shape = [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim]
    shape.append(head.token.out_features)
    graph.output.append(helper.make_tensor_value_info(TERMS, TensorProto.FLOAT, shape))
    return model


def learned_head(head: TermImpacts, priors: Mapping[str, float]) -> LearnedHead:
    """Converts a trained head for builds; `priors` has the words' fractions of the training queries' words, of one at least."""
    values = {name: value.detach().numpy().astype(np.float32) for name, value in head.named_parameters()}
    idf = float(values["gain_idf"])
    return LearnedHead(
        projection=np.ascontiguousarray(values["word.weight"].T),
        bias=values["word.bias"],
        gain_weight=values["gain.weight"][0],
        gain_bias=float(values["gain.bias"][0]) - MEAN_IDF * idf,
        gain_idf=idf,
        scale=float(head.slope.detach() / head.bm25_weight.detach()),
        cut=float(values["cut"]),
        words=tuple(priors),
        priors=np.array(list(priors.values()), np.float32),
    )


def _check_terms(folder: Path) -> None:
    preprocessor = load_preprocessor(folder)
    texts = parity_texts(preprocessor)[DOCUMENT_TOWER][:_CHECKED_TEXTS]
    pad_id = preprocessor.pieces.pad_id
    expected = Encoder(folder / DOCUMENT_TOWER, pad_id).run(texts)
    vectors, terms = Encoder(folder / TERMS_TOWER, pad_id).run_outputs(texts, [VECTOR, TERMS])
    lengths = np.linalg.norm(terms, axis=-1)
    if not np.array_equal(vectors, expected) or not np.allclose(lengths, 1.0, atol=1e-4):
        raise ExportError(
            f"{TERMS_TOWER} gives other vectors than {DOCUMENT_TOWER}, or directions that are not of length 1"
        )
