"""The one home of text handling: words, word pieces, term statistics, BM25 and BM25F, preprocessing."""

from glow.text.lexical import is_lexical, lexical_words
from glow.text.preprocessor import (
    PREPROCESSOR_VERSION,
    Preprocessor,
    WeightedTokens,
    field_words,
    load_preprocessor,
)
from glow.text.terms import TermCounter, TermStats, TermTable, select_terms
from glow.text.weighting import Weighting, WordWeigher, WordWeights
from glow.text.words import WordPieces

__all__ = [
    "PREPROCESSOR_VERSION",
    "Preprocessor",
    "TermCounter",
    "TermStats",
    "TermTable",
    "WeightedTokens",
    "Weighting",
    "WordPieces",
    "WordWeigher",
    "WordWeights",
    "field_words",
    "is_lexical",
    "lexical_words",
    "load_preprocessor",
    "select_terms",
]
