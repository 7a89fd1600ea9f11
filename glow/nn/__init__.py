"""Torch modules: weighted attention, the two towers, the cross-encoder, pre-training."""

from glow.encoders import (
    MASKED_LOGIT,
    Pooling,
    TowerConfig,
    WeightForm,
    WeightSide,
    bert_config,
    load_weights,
)
from glow.nn.attention import WeightedSelfAttention
from glow.nn.bert import (
    bert_tensors,
    init_cross_encoder,
    init_encoder,
    init_from_bert,
    init_tower,
    minilm_folder,
)
from glow.nn.cross_encoder import Compressor, CrossConfig, CrossEncoder, LateInteraction, Side
from glow.nn.pretraining import (
    CrossThought,
    Pretrainer,
    PretrainingBatch,
    PretrainingKind,
    SentenceConfig,
    SentenceEncoder,
)
from glow.nn.term_impacts import MEAN_IDF, TermImpacts
from glow.nn.towers import EncoderLayer, Tower, TwoTowers

__all__ = [
    "MASKED_LOGIT", "MEAN_IDF", "Compressor", "CrossConfig", "CrossEncoder", "CrossThought",
    "EncoderLayer", "LateInteraction", "Pooling", "Pretrainer", "PretrainingBatch", "PretrainingKind",
    "SentenceConfig", "SentenceEncoder", "Side", "TermImpacts", "Tower", "TowerConfig", "TwoTowers",
    "WeightForm", "WeightSide", "WeightedSelfAttention", "bert_config", "bert_tensors",
    "init_cross_encoder", "init_encoder", "init_from_bert", "init_tower", "load_weights",
    "minilm_folder",
]  # fmt: skip
