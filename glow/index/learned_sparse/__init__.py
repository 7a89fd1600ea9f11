"""Learned impacts: the words that a document counts for, even if it lacks them."""

from glow.index.learned_sparse.build import build_learned
from glow.index.learned_sparse.impacts import Expansion, LearnedImpacts, LearnedWords, WordScorer
from glow.index.learned_sparse.parts import (
    LEARNED_WEIGHT_FILE,
    LearnedWeight,
    open_learned,
    open_learned_weight,
)
from glow.index.learned_sparse.words import LEARNED_WORDS_FILES, LEARNED_WORDS_FOLDER, WordSide, choose_words

__all__ = [
    "LEARNED_WEIGHT_FILE",
    "LEARNED_WORDS_FILES",
    "LEARNED_WORDS_FOLDER",
    "Expansion",
    "LearnedImpacts",
    "LearnedWeight",
    "LearnedWords",
    "WordScorer",
    "WordSide",
    "build_learned",
    "choose_words",
    "open_learned",
    "open_learned_weight",
]
