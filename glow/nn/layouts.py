"""Imported encoders under BERT's names: BERT, RoBERTa and DistilBERT have different names for the same computation.

MPNet adds a bias for the distance between two tokens, in buckets that grow with it.
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, zeros

__all__ = ["bert_name", "distance_rows", "in_bert_names"]

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
