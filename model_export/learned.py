"""Adds a trained head of learned impacts to a model: the document tower gets token directions as a second output.

The graph is made from the exported one, quantized or not, and refers to the same weights. So vectors are bit for bit
those of the plain tower, and the graph costs kilobytes.

    B   batch       L   tokens      D   hidden size     K   dimensions of a direction
"""

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
    Manifest,
    learned_hash,
    model_hash,
    read_manifest,
    verify,
)
from glow.errors import ExportError, MismatchError
from glow.nn import MEAN_IDF, TermImpacts
from glow.runtime import TERMS, VECTOR, Encoder, LearnedHead
from glow.text import load_preprocessor
from glow.training import load_impacts
from glow_model_export.explain import add_files
from glow_model_export.parity import parity_texts
from glow_model_export.retrofit import SAME_VECTORS
from glow_model_export.tokens import last_states

__all__ = ["add_learned", "add_terms", "learned_head"]

_CHECKED_TEXTS = 16
_TOKEN, _BIAS = "learned.token.weight", "learned.token.bias"


def add_learned(folder: Path, checkpoint: Path) -> dict[str, Any]:
    """Adds or replaces the head of an existing model; its weights, graphs and model hash stay unchanged.

    Args:
        folder: the model.
        checkpoint: of a head that was trained for it.

    Returns:
        The model's name, the head's hash and its size in bytes.

    Raises:
        ArtifactError: if either is missing, damaged, or of another type.
        MismatchError: if the head was trained for another model.
        ExportError: if the tower is unknown, or the graph does not give its vectors.
    """
    manifest = verify(folder, "model")
    trained = load_impacts(checkpoint)
    if trained.model not in _hashes(manifest):
        raise MismatchError(
            f"{checkpoint.name} was trained for a model of hash {trained.model[:8]}, {folder.name} has "
            f"{model_hash(manifest.files)[:8]}; train a head for this one"
        )
    graph = onnx.load(folder / DOCUMENT_TOWER, load_external_data=False)
    # Temporary names until both are checked: a reader of the model must never see a new file with an old one.
    made = {name: folder / f".{name}" for name in (TERMS_TOWER, LEARNED_HEAD)}
    try:
        onnx.save(add_terms(graph, trained.head), made[TERMS_TOWER])
        learned_head(trained.head, trained.priors).save(made[LEARNED_HEAD])
        _check(folder, made[TERMS_TOWER])
        for name, path in made.items():
            path.replace(folder / name)
    finally:
        for path in made.values():
            path.unlink(missing_ok=True)
    add_files(folder, manifest, list(made))
    size = sum((folder / name).stat().st_size for name in made)
    digest = learned_hash(read_manifest(folder, "model").files)
    return {"model": manifest.name, "learned": digest, "bytes": size, "training": dict(trained.report)}


def _hashes(manifest: Manifest) -> tuple[str, ...]:
    """Hashes of the model, and of the model with the same weights that it was derived from."""
    own = model_hash(manifest.files)
    same = manifest.parents.get(SAME_VECTORS)
    return (own, str(same.get("hash"))) if isinstance(same, dict) else (own,)


def add_terms(model: ModelProto, head: TermImpacts) -> ModelProto:
    """Gives a document tower's graph the output `terms`, float32 [B, L, K]: the L2-normalized directions of its tokens.

    Args:
        model: a tower in any precision, changed in place; its external data need not be loaded.
        head: a head that was trained for it.

    Raises:
        ExportError: if the last layer's token embeddings are not found.
    """
    graph, (states, _) = model.graph, last_states(model)
    weights = {_TOKEN: head.token.weight.detach().numpy().T, _BIAS: head.token.bias.detach().numpy()}
    graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name)
        for name, value in weights.items()
    )
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Cast", [states], "learned.states", {"to": TensorProto.FLOAT}),
        ("MatMul", ["learned.states", _TOKEN], "learned.product", {}),
        ("Add", ["learned.product", _BIAS], "learned.token", {}),
        ("LpNormalization", ["learned.token"], TERMS, {"axis": -1, "p": 2}),
    ]
    graph.node.extend(
        helper.make_node(kind, inputs, [out], f"{out}.{kind}", **attributes)
        for kind, inputs, out, attributes in steps
    )
    shape = [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim]
    graph.output.append(
        helper.make_tensor_value_info(TERMS, TensorProto.FLOAT, [*shape, head.token.out_features])
    )
    return model


def learned_head(head: TermImpacts, priors: Mapping[str, float]) -> LearnedHead:
    """Converts a trained head for builds: gains in units of BM25 impacts.

    Args:
        head: a trained head.
        priors: word -> its fraction of the words in the training queries; at least one.
    """
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


def _check(folder: Path, graph: Path) -> None:
    preprocessor = load_preprocessor(folder)
    texts = parity_texts(preprocessor)[DOCUMENT_TOWER][:_CHECKED_TEXTS]
    pad_id = preprocessor.pieces.pad_id
    expected = Encoder(folder / DOCUMENT_TOWER, pad_id).run(texts)
    vectors, terms = Encoder(graph, pad_id).run_outputs(texts, [VECTOR, TERMS])
    lengths = np.linalg.norm(terms, axis=-1)
    if not np.array_equal(vectors, expected) or not np.allclose(lengths, 1.0, atol=1e-4):
        raise ExportError(
            f"{TERMS_TOWER} gives other vectors than {DOCUMENT_TOWER}, or directions that are not of length 1"
        )
