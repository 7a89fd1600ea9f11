"""Torch modules: weighted attention and the two towers; they take plain arguments."""

from glow.nn.attention import WeightedSelfAttention, WeightForm, WeightSide, weighted_attention
from glow.nn.bert import bert_config, init_from_bert, init_tower, init_words, load_weights, minilm_folder
from glow.nn.towers import Pooling, Tower, TowerConfig, TwoTowers

__all__ = [
    "Pooling", "Tower", "TowerConfig", "TwoTowers", "WeightForm", "WeightSide", "WeightedSelfAttention",
    "bert_config", "init_from_bert", "init_tower", "init_words", "load_weights", "minilm_folder",
    "weighted_attention",
]  # fmt: skip
