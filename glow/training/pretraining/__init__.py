"""Pre-trains an encoder on text without queries: Cross-Thought and other objectives for comparison."""

from glow.training.pretraining.checkpoint import Pretrained, load_pretrained, save_pretrained
from glow.training.pretraining.config import PretrainConfig
from glow.training.pretraining.initial import initial_pretrainer, return_to_tower, start_from_tower
from glow.training.pretraining.recipe import attention_entropy, pretraining_recipe
from glow.training.pretraining.samples import mask_pieces
from glow.training.pretraining.stream import read_texts

__all__ = [
    "PretrainConfig", "Pretrained", "attention_entropy", "initial_pretrainer", "load_pretrained", "mask_pieces", "pretraining_recipe",
    "read_texts", "return_to_tower", "save_pretrained", "start_from_tower",
]  # fmt: skip
