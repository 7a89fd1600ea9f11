"""`config.json` of an imported encoder, and the header of its weights: checked before any memory is allocated for them."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import AliasChoices, Field, model_validator
from safetensors import SafetensorError, safe_open

from glow.errors import ConfigError
from glow.options import ForeignModel

__all__ = ["FLOATS", "EncoderFile", "encoder_shapes", "open_weights", "require_shapes"]

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
    """The kind of an encoder and its functions.

    Attributes:
        model_type: the kind; RoBERTa's keeps rows of its position table for padding.
        activation, position_kind: names of the functions.
    """

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
    """The fields of `config.json` that GLOW reads, under the names of BERT or of DistilBERT.

    Attributes:
        vocabulary, hidden, heads, intermediate, layers: shape of the encoder; `heads` divides `hidden`.
        positions: rows of the position table.
        layer_norm_eps: BERT's 1e-12.
        pad_token_id: RoBERTa's and MPNet's positions start after it.
        buckets: rows of MPNet's table of distances between tokens, half of them for each direction.
    """

    vocabulary: int = Field(validation_alias="vocab_size", ge=5, le=MAX_ROWS)
    hidden: int = Field(validation_alias=AliasChoices("hidden_size", "dim"), ge=1, le=MAX_WIDTH)
    heads: int = Field(validation_alias=AliasChoices("num_attention_heads", "n_heads"), ge=1, le=MAX_WIDTH)
    intermediate: int = Field(
        validation_alias=AliasChoices("intermediate_size", "hidden_dim"), ge=1, le=MAX_WIDTH
    )
    layers: int = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layers"), ge=1, le=MAX_LAYERS)
    positions: int = Field(default=512, validation_alias="max_position_embeddings", ge=1, le=MAX_ROWS)
    layer_norm_eps: float = Field(default=1e-12, gt=0.0, le=1.0, allow_inf_nan=False)
    pad_token_id: int | None = Field(default=None, ge=0, le=MAX_ROWS)
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
        """Reads the file; if the kind of encoder is not supported, only that is reported.

        Raises:
            ConfigError: if it cannot be read, or a tower cannot have its shape.
        """
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
    file: EncoderFile, found: Mapping[str, tuple[str, Shape]], name: str, *, all_layers: bool = True
) -> None:
    """Compares the header of the weights with `config.json`, without reading the weights.

    Args:
        file: the configuration.
        found: BERT's name of a tensor -> type and shape, from the header.
        name: of the file of weights.
        all_layers: whether every layer is required; training uses only some, and a directory may lack the others.

    Raises:
        ConfigError: with the first tensor that is missing or has another shape.
    """
    for tensor, wanted in encoder_shapes(file):
        if tensor not in found and not all_layers and tensor.startswith("encoder.layer."):
            continue
        if tensor not in found:
            raise ConfigError(f"{name} lacks {tensor}, which config.json asks for, of shape {list(wanted)}")
        kind, shape = found[tensor]
        grows = tensor.endswith(("position_embeddings.weight", "token_type_embeddings.weight"))
        fits = (
            len(shape) == 2 and shape[0] >= wanted[0] and shape[1:] == wanted[1:]
            if grows
            else shape == wanted
        )
        if kind not in FLOATS or not fits:
            raise ConfigError(
                f"{tensor} of {name} is {kind} {list(shape)}, config.json asks for a float {list(wanted)}"
            )


def open_weights(path: Path) -> "safe_open":
    """Opens weights without reading them; use it as a context manager.

    Raises:
        ConfigError: if it is not a safetensors file, or its header is too large.
    """
    try:
        if not path.is_file():
            raise ConfigError(f"cannot read {path}: there is no such file")
        with path.open("rb") as opened:
            head = opened.read(8)
        if len(head) < 8 or (size := struct.unpack("<Q", head)[0]) > MAX_HEADER_BYTES:
            found = f"a header of {size} bytes" if len(head) == 8 else f"{len(head)} bytes"
            raise ConfigError(
                f"cannot read {path}: found {found}, expected a safetensors file with a header of at most {MAX_HEADER_BYTES}"
            )
        return safe_open(str(path), framework="pt")
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
