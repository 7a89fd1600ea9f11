"""Learned sparse retrieval: the words that a document matches, even if it lacks them."""

from glow.index.learned_sparse.component import LEARNED_SPARSE, LearnedOptions, LearnedRules
from glow.index.learned_sparse.impacts import LEARNED_WORDS_FOLDER, LearnedImpacts, WordSide

__all__ = [
    "LEARNED_SPARSE", "LEARNED_WORDS_FOLDER", "LearnedImpacts", "LearnedOptions", "LearnedRules", "WordSide",
]  # fmt: skip
