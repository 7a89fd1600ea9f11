"""Encoders that others trained, in BERT's names: BERT, RoBERTa and DistilBERT differ in how they call their parts, not in what they compute."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, zeros

from glow.errors import ConfigError

__all__ = ["in_bert_names", "shape_of"]

_ROBERTA = ("roberta", "xlm-roberta", "camembert")
_KINDS = ("bert", "distilbert", *_ROBERTA)
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


def shape_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `TowerConfig` that an encoder's `config.json` decides.

    Raises:
        ConfigError: if it is of another kind, or computes something else than BERT does.
    """
    kind = config.get("model_type", "bert")
    if kind not in _KINDS:
        raise ConfigError(f"model_type {kind!r} is not of BERT's kind; expected one of {', '.join(_KINDS)}")
    activation = config.get("activation" if kind == "distilbert" else "hidden_act", "gelu")
    positions = config.get("position_embedding_type", "absolute")
    if activation != "gelu" or positions != "absolute":
        raise ConfigError(f"expected gelu and absolute positions, found {activation} and {positions}")
    names = ("dim", "n_heads", "hidden_dim", "n_layers")
    if kind != "distilbert":
        names = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
    hidden, heads, intermediate, layers = (config[name] for name in names)
    return {
        "vocabulary": config["vocab_size"],
        "hidden": hidden,
        "heads": heads,
        "intermediate": intermediate,
        "layers": layers,
        "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
    }


def in_bert_names(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """An encoder's tensors, float32, as BERT calls them; what is no part of the encoder keeps its name.

    Args:
        tensors: of its safetensors file.
        config: of its `config.json`; an empty one is BERT's.
    """
    kind = config.get("model_type", "bert")
    found = {}
    for name, tensor in tensors.items():
        plain = _PREFIX.sub("", name)
        if kind == "distilbert":
            for pattern, wanted in _DISTILBERT:
                plain = pattern.sub(wanted, plain)
        found[plain] = tensor.float()
    if kind in _ROBERTA and _POSITIONS in found:
        found[_POSITIONS] = found[_POSITIONS][
            int(config.get("pad_token_id", 1)) + 1 :
        ]  # what stands before is padding's
    if kind == "distilbert" and _POSITIONS in found:
        found.setdefault(_KIND, zeros(1, found[_POSITIONS].shape[1]))
    return found
