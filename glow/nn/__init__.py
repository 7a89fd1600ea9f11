"""Torch modules: weighted attention, the two towers, the cross-encoder; they take plain arguments."""

from glow.nn.attention import WeightedSelfAttention, WeightForm, WeightSide, weighted_attention
from glow.nn.bert import (
    bert_config,
    init_cross_encoder,
    init_from_bert,
    init_tower,
    init_words,
    load_weights,
    minilm_folder,
)
from glow.nn.compressor import Compressor
from glow.nn.cross_encoder import CrossConfig, CrossEncoder, Side
from glow.nn.towers import Pooling, Tower, TowerConfig, TwoTowers

__all__ = [
    "Compressor", "CrossConfig", "CrossEncoder", "Pooling", "Side", "Tower", "TowerConfig", "TwoTowers", "WeightForm", "WeightSide", "WeightedSelfAttention",
    "bert_config", "init_cross_encoder", "init_from_bert", "init_tower", "init_words", "load_weights", "minilm_folder",
    "weighted_attention",
]  # fmt: skip
