"""Encoders that others trained, in BERT's names: BERT, RoBERTa and DistilBERT differ in how they call their parts, not in what they compute."""

import re
from collections.abc import Mapping

from torch import Tensor, zeros

__all__ = ["bert_name", "in_bert_names"]

_PREFIX = re.compile(r"^(bert|roberta|distilbert)\.")
_DISTILBERT = (
    (
        re.compile(r"^transformer\.layer\.(\d+)\.attention\.q_lin\."),
        r"encoder.layer.\1.attention.self.query.",
    ),
    (re.compile(r"^transformer\.layer\.(\d+)\.attention\.k_lin\."), r"encoder.layer.\1.attention.self.key."),
    (
        re.compile(r"^transformer\.layer\.(\d+)\.attention\.v_lin\."),
        r"encoder.layer.\1.attention.self.value.",
    ),
    (
        re.compile(r"^transformer\.layer\.(\d+)\.attention\.out_lin\."),
        r"encoder.layer.\1.attention.output.dense.",
    ),
    (
        re.compile(r"^transformer\.layer\.(\d+)\.sa_layer_norm\."),
        r"encoder.layer.\1.attention.output.LayerNorm.",
    ),
    (re.compile(r"^transformer\.layer\.(\d+)\.ffn\.lin1\."), r"encoder.layer.\1.intermediate.dense."),
    (re.compile(r"^transformer\.layer\.(\d+)\.ffn\.lin2\."), r"encoder.layer.\1.output.dense."),
    (re.compile(r"^transformer\.layer\.(\d+)\.output_layer_norm\."), r"encoder.layer.\1.output.LayerNorm."),
)
_POSITIONS, _KIND = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"


def bert_name(name: str, kind: str) -> str:
    """What BERT calls a tensor of an encoder of a kind; what is no part of an encoder keeps its name."""
    plain = _PREFIX.sub("", name)
    if kind == "distilbert":
        for pattern, wanted in _DISTILBERT:
            plain = pattern.sub(wanted, plain)
    return plain


def in_bert_names(tensors: Mapping[str, Tensor], kind: str, padding_rows: int = 0) -> dict[str, Tensor]:
    """An encoder's tensors, float32, as BERT calls them.

    Args:
        tensors: of its safetensors file.
        kind: its `model_type`.
        padding_rows: of its position table, before the first token's.
    """
    found = {bert_name(name, kind): tensor.float() for name, tensor in tensors.items()}
    if padding_rows and _POSITIONS in found:
        found[_POSITIONS] = found[_POSITIONS][padding_rows:]
    if kind == "distilbert" and _POSITIONS in found:
        found.setdefault(_KIND, zeros(1, found[_POSITIONS].shape[1]))
    return found
