"""The shape of towers, and encoders that others trained as parameters of towers; without torch.

BERT, RoBERTa and DistilBERT have different names for the same computation. MPNet adds a bias for the distance between two tokens,
in buckets that grow with it. A directory is untrusted: `config.json` and the header of the weights are checked before any memory
is allocated for them.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, model_validator

from glow.errors import ConfigError
from glow.options import ForeignModel, StrictModel

Pooling = Literal["cls", "tanh", "mean", "weighted"]
WeightSide = Literal["key", "row"]
WeightForm = Literal["multiply", "log", "plain"]
MASKED_LOGIT = -10_000.0
"""Added to the logits of padded keys after weighting, as in BERT; softmax gives them exactly 0 in fp32."""
MIN_WEIGHT = 1e-3
"""Minimum of a weight before its logarithm."""
Parameters = Mapping[str, NDArray[np.float32]]
"""Weights by name."""


class LayerConfig(StrictModel):
    """Shape of an encoder's layers."""

    vocabulary: int = Field(ge=5)  # number of subword tokens
    hidden: int = Field(default=384, ge=1)  # H
    layers: int = Field(default=3, ge=1)
    heads: int = Field(default=12, ge=1)  # divides H
    intermediate: int = Field(default=1536, ge=1)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)  # of hidden states and attention, in training
    layer_norm_eps: float = Field(default=1e-12, gt=0.0)  # BERT's

    def tower(self, weight_form: WeightForm) -> "TowerConfig":
        """The same layers in a tower."""
        return TowerConfig(**self.model_dump(include=set(LayerConfig.model_fields)), weight_form=weight_form)


class TowerConfig(LayerConfig):
    """Shape of both towers, which may differ in depth; the vector has H dimensions."""

    # Of the document tower, if different from `layers`: documents are encoded in builds, so depth does not slow searches
    document_layers: int = Field(default=0, ge=0)
    weight_side: WeightSide = "key"  # `key` is Eq. 2, `row` Eq. 4
    # How weights merge with attention logits: `multiply` (the papers), `log` (their logarithm added, times a learned gain per head)
    # or `plain` (attention without weights, for a pooling that has them)
    weight_form: WeightForm = "multiply"
    gain: float = 0.0  # initial gain of `log` and exponent of `weighted`; 0 is plain attention
    pooling_gain: float | None = None  # another initial exponent of the pooling; None: `gain`
    # Raw last [CLS] (`cls`, Eq. 9), a tanh layer over it (`tanh`, released code), the `mean` of all tokens, or `weighted`: their
    # mean weighted by w ** gain, the gain learned
    pooling: Pooling = "mean"
    relative_positions: bool = False  # a learned bias per layer, head and distance (MPNet)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weight_form == "log" and self.weight_side == "row":
            raise ValueError("weight_form 'log' needs the key side: a softmax ignores what a row shares")
        return self

    @property
    def exponent(self) -> float:
        """The initial exponent of weights in the pooling."""
        return self.gain if self.pooling_gain is None else self.pooling_gain

    @property
    def document(self) -> Self:
        """The document tower's shape, with its own number of layers in `layers`."""
        return self.model_copy(update={"layers": self.document_layers or self.layers})


ROBERTA = ("roberta", "xlm-roberta", "camembert")
KINDS = ("bert", "distilbert", "mpnet", *ROBERTA)
FLOATS = ("F64", "F32", "F16", "BF16")
MAX_HEADER_BYTES = 1 << 23
"""A tensor takes about 100 bytes of the header, and a layer has 16 of them."""
MAX_LAYERS = 128
DISTANCES = "encoder.relative_attention_bias.weight"
MAX_ROWS, MAX_WIDTH = 1 << 24, 1 << 20
Shape = tuple[int, ...]


class EncoderKind(ForeignModel):
    """The kind of an encoder and its functions."""

    model_type: str = Field(default="bert", max_length=64)
    activation: str = Field(
        default="gelu", validation_alias=AliasChoices("hidden_act", "activation"), max_length=64
    )
    position_kind: str = Field(default="absolute", validation_alias="position_embedding_type", max_length=64)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.model_type not in KINDS:
            raise ValueError(
                f"model_type {self.model_type!r} is not of BERT's kind; expected one of {', '.join(KINDS)}"
            )
        if self.activation != "gelu" or self.position_kind != "absolute":
            raise ValueError(
                f"expected gelu and absolute positions, found {self.activation} and {self.position_kind}"
            )
        return self


class EncoderFile(EncoderKind):
    """The fields of `config.json` that GLOW reads, under the names of BERT or of DistilBERT."""

    vocabulary: int = Field(validation_alias="vocab_size", ge=5, le=MAX_ROWS)
    hidden: int = Field(validation_alias=AliasChoices("hidden_size", "dim"), ge=1, le=MAX_WIDTH)
    heads: int = Field(validation_alias=AliasChoices("num_attention_heads", "n_heads"), ge=1, le=MAX_WIDTH)
    intermediate: int = Field(
        validation_alias=AliasChoices("intermediate_size", "hidden_dim"), ge=1, le=MAX_WIDTH
    )
    layers: int = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layers"), ge=1, le=MAX_LAYERS)
    positions: int = Field(default=512, validation_alias="max_position_embeddings", ge=1, le=MAX_ROWS)
    layer_norm_eps: float = Field(default=1e-12, gt=0.0, le=1.0, allow_inf_nan=False)
    # RoBERTa's and MPNet's positions start after it
    pad_token_id: int | None = Field(default=None, ge=0, le=MAX_ROWS)
    # Rows of MPNet's table of distances between tokens, half of them for each direction
    buckets: int = Field(
        default=32, validation_alias="relative_attention_num_buckets", ge=4, le=MAX_ROWS, multiple_of=4
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.hidden} dimensions")
        if self.tokens < 1:
            raise ValueError(
                f"{self.positions} positions, of which padding takes {self.padding_rows}, leave no token"
            )
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the file; if the kind of encoder is not supported, only that is reported."""
        EncoderKind.load(path)
        return super().load(path)

    @property
    def padding_rows(self) -> int:
        """Rows of the position table before the first token's."""
        if self.model_type != "mpnet" and self.model_type not in ROBERTA:
            return 0
        return (1 if self.pad_token_id is None else self.pad_token_id) + 1

    @property
    def tokens(self) -> int:
        """The longest input, including [CLS] and [SEP]."""
        return self.positions - self.padding_rows


def encoder_shapes(file: EncoderFile) -> Iterator[tuple[str, Shape]]:
    """Names (BERT's) and shapes of all tensors that the encoder must have; for positions and segments, the minimum number of rows."""
    wide, inner = file.hidden, file.intermediate
    yield "embeddings.word_embeddings.weight", (file.vocabulary, wide)
    yield "embeddings.position_embeddings.weight", (file.positions, wide)
    if file.model_type == "mpnet":
        yield DISTANCES, (file.buckets, file.heads)
    elif file.model_type != "distilbert":
        yield "embeddings.token_type_embeddings.weight", (1, wide)
    yield from _affine("embeddings.LayerNorm", wide)
    for number in range(file.layers):
        layer = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _affine(f"{layer}.attention.{name}", wide, wide)
        yield from _affine(f"{layer}.attention.output.LayerNorm", wide)
        yield from _affine(f"{layer}.intermediate.dense", inner, wide)
        yield from _affine(f"{layer}.output.dense", wide, inner)
        yield from _affine(f"{layer}.output.LayerNorm", wide)


def _affine(name: str, rows: int, *columns: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, *columns)
    yield f"{name}.bias", (rows,)


def require_shapes(
    file: EncoderFile,
    header: Mapping[str, tuple[str, Shape]],  # BERT's name of a tensor -> type and shape
    name: str,  # of the file of weights
    *,
    all_layers: bool = True,  # training uses only some layers, and a directory may lack the others
) -> None:
    """Compares the header of the weights with `config.json`; a `ConfigError` names the first tensor that does not fit."""
    for tensor, expected in encoder_shapes(file):
        if tensor not in header and not all_layers and tensor.startswith("encoder.layer."):
            continue
        if tensor not in header:
            raise ConfigError(f"{name} lacks {tensor}, which config.json asks for, of shape {list(expected)}")
        kind, shape = header[tensor]
        fits = shape == expected
        if tensor.endswith(("position_embeddings.weight", "token_type_embeddings.weight")):
            fits = len(shape) == 2 and shape[0] >= expected[0] and shape[1] == expected[1]
        if kind not in FLOATS or not fits:
            raise ConfigError(
                f"{tensor} of {name} is {kind} {list(shape)}, config.json asks for a float {list(expected)}"
            )


def open_weights(path: Path) -> Any:
    """Opens weights of safetensors as a context manager, without reading them; a `ConfigError` if that cannot be done safely."""
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():
            raise ConfigError(f"cannot read {path}: there is no such file")
        with path.open("rb") as opened:
            head = opened.read(8)
        if len(head) < 8 or (size := struct.unpack("<Q", head)[0]) > MAX_HEADER_BYTES:
            content = f"a header of {size} bytes" if len(head) == 8 else f"{len(head)} bytes"
            raise ConfigError(
                f"cannot read {path}: found {content}, expected a safetensors file with a header of at most {MAX_HEADER_BYTES}"
            )
        return safe_open(str(path), framework="np")
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


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
LAYER_PARTS = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "inner": ("intermediate.dense",),
    "outer": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
"""A tower's module -> BERT's modules whose weights it has one below the other."""
FARTHEST = 128
"""In tokens: all distances from here on share MPNet's last bucket."""
WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
WORDS, POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
KINDS_OF_TEXT, NORM = "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm"


def bert_name(name: str, kind: str) -> str:
    """BERT's name of a tensor of an encoder of this kind; a tensor outside the encoder keeps its name."""
    plain = _PREFIX.sub("", name)
    layer = _LAYER.match(plain)
    if layer is None or kind not in _PARTS:
        return plain
    return f"encoder.layer.{layer[1]}.{_PARTS[kind].get(layer[2], layer[2])}.{layer[3]}"


def bert_config(folder: Path, **changes: object) -> TowerConfig:
    """The tower shape of a BERT directory, whose weights must fit its `config.json`; `changes` replace its fields."""
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


def load_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of a directory with a BERT-like encoder, under BERT's names without a prefix; positions begin with the first token's.

    Raises a `ConfigError` if it cannot be read, or a value is not finite.
    """
    path = folder / WEIGHTS_FILE
    file = EncoderFile.load(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else None
    kind, shapes = (file.model_type, dict(encoder_shapes(file))) if file else ("bert", {})
    weights: dict[str, NDArray[np.float32]] = {}
    with open_weights(path) as opened:
        for name in opened.keys():
            plain = bert_name(name, kind)
            if file and plain not in shapes and not plain.startswith("pooler.dense."):
                continue
            is_float = str(opened.get_slice(name).get_dtype()) in FLOATS
            value = opened.get_tensor(name).astype(np.float32, copy=False) if is_float else None
            if value is None or not np.isfinite(value).all():
                raise ConfigError(f"{name} of {path} has a value that is not finite; expected finite floats")
            weights[plain] = value
    if POSITIONS in weights:
        weights[POSITIONS] = weights[POSITIONS][file.padding_rows if file else 0 :]
        if kind in _PARTS:
            weights.setdefault(KINDS_OF_TEXT, np.zeros((1, weights[POSITIONS].shape[1]), np.float32))
    return weights


def tower_parameters(
    weights: Parameters,  # as `load_weights` returns them
    layers: Sequence[int],  # numbers of the layers that become layers 0, 1, …
    tokens: int,  # of the longest input
    fields: int,  # all start with BERT's first segment, the only one that single-text encoders were trained with
) -> dict[str, NDArray[np.float32]]:
    """An encoder's weights under the names of a tower's parameters, without a pooling's."""
    positions, kinds = _known(weights, POSITIONS), _known(weights, KINDS_OF_TEXT)
    parameters = {
        "words.weight": _known(weights, WORDS),
        "positions.weight": positions[:tokens],
        "fields.weight": np.repeat(kinds[:1], fields, axis=0),
        **{f"embedding_norm.{kind}": _known(weights, f"{NORM}.{kind}") for kind in ("weight", "bias")},
    }
    if DISTANCES in weights:
        parameters["distances.weight"] = distance_rows(weights[DISTANCES], tokens)
    for place, number in enumerate(layers):
        own = layer_parameters(weights, number)
        parameters |= {f"layers.{place}.{name}": value for name, value in own.items()}
    return parameters


def layer_parameters(weights: Parameters, number: int) -> dict[str, NDArray[np.float32]]:
    """One layer's weights under the names of a tower layer's parameters."""
    parameters = {}
    for part, names in LAYER_PARTS.items():
        for kind in ("weight", "bias"):
            rows = [_known(weights, f"encoder.layer.{number}.{name}.{kind}") for name in names]
            parameters[f"{part}.{kind}"] = np.concatenate(rows) if len(rows) > 1 else rows[0]
    return parameters


def _known(weights: Parameters, name: str) -> NDArray[np.float32]:
    if name not in weights:
        layer = _LAYER.match(name)
        lacking = f"have no encoder.layer.{layer[1]}: {name} is missing" if layer else f"lack {name}"
        raise ConfigError(f"the initial weights {lacking}")
    return weights[name]


def distance_rows(table: NDArray[np.float32], tokens: int) -> NDArray[np.float32]:
    """MPNet's biases [buckets, n], expanded to one row per distance of tokens, [2 L - 1, n]; row L - 1 is for distance 0.

    Half of the buckets are for keys before the token, half for those after it. Half of each half has one distance per bucket; in the
    rest, the distance grows logarithmically, up to `FARTHEST`.
    """
    half = len(table) // 2
    exact = half // 2
    distances = np.arange(1 - tokens, tokens)
    far = np.maximum(np.abs(distances), 1).astype(np.float32)
    steps = np.log(far / np.float32(exact)) / math.log(FARTHEST / exact) * (half - exact)
    grown = exact + steps.astype(np.int64)
    buckets = np.where(np.abs(distances) < exact, np.abs(distances), np.minimum(grown, half - 1))
    rows: NDArray[np.float32] = table[buckets + half * (distances > 0)]
    return rows
