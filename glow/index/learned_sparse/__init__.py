"""Learned sparse retrieval: the words that a document matches, even if it lacks them."""

from glow.index.learned_sparse.component import LEARNED_SPARSE, LearnedOptions, LearnedRules
from glow.index.learned_sparse.impacts import LearnedImpacts
from glow.index.learned_sparse.weight import LEARNED_WEIGHT_FILE, LearnedWeight
from glow.index.learned_sparse.words import LEARNED_WORDS_FOLDER, WordSide

__all__ = [
    "LEARNED_SPARSE",
    "LEARNED_WEIGHT_FILE",
    "LEARNED_WORDS_FOLDER",
    "LearnedImpacts",
    "LearnedOptions",
    "LearnedRules",
    "LearnedWeight",
    "WordSide",
]
