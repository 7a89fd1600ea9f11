"""Learned sparse retrieval: the words that a document matches, even if it lacks them."""

from glow.index.learned_sparse.component import (
    LEARNED_SPARSE,
    LEARNED_WEIGHT_FILE,
    LearnedOptions,
    LearnedRules,
    LearnedWeight,
    read_weight,
)
from glow.index.learned_sparse.impacts import LEARNED_WORDS_FOLDER, Expansion, LearnedImpacts, WordSide

__all__ = [
    "LEARNED_SPARSE",
    "LEARNED_WEIGHT_FILE",
    "LEARNED_WORDS_FOLDER",
    "Expansion",
    "LearnedImpacts",
    "LearnedOptions",
    "LearnedRules",
    "LearnedWeight",
    "WordSide",
    "read_weight",
]
