"""How a query is read before it is searched: slips are corrected, then it becomes the query tower's input.

The service, evaluation, the gate and tuning read queries here, so what is measured is what is served.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import Searchable
from glow.index.postings import POSTINGS
from glow.runtime import EncodedText
from glow.search.late import QueryTokens
from glow.text import WeightedTokens, is_lexical, is_punctuation

__all__ = ["AnalyzedQuery", "EncodedQuery", "Typos", "analyze_query", "is_known", "unknown_words"]

Typos = Literal["auto", "off"]
"""Whether words that the index does not know are corrected where it settles what was meant."""


@dataclass(frozen=True, slots=True, eq=False)
class AnalyzedQuery:
    """A query as it is searched.

    Attributes:
        text: what is searched, by words and by meaning.
        tokens: the query tower's input.
        corrected: unknown word -> what is searched in its place.
    """

    text: str
    tokens: WeightedTokens
    corrected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A query as hybrid search asks it.

    Attributes:
        text: what is searched by words.
        vector: float32 [D], L2-normalised.
        tokens: what documents' tokens are compared with; None: nothing is.
    """

    text: str
    vector: NDArray[np.float32]
    tokens: QueryTokens | None = None

    @classmethod
    def of(cls, reading: AnalyzedQuery, encoded: EncodedText) -> "EncodedQuery":
        """A query that its tower has read."""
        tokens = None if encoded.tokens is None else QueryTokens.of(reading.tokens, encoded.tokens)
        return cls(reading.text, encoded.vector, tokens)


def unknown_words(index: Searchable, tokens: WeightedTokens) -> tuple[str, ...]:
    """Words of a query that no document holds, nor another word of their stem; none if the index has no words."""
    if not index.holds(POSTINGS):
        return ()
    words = dict.fromkeys(word for word in tokens.words if is_lexical(word))
    return tuple(word for word in words if not index[POSTINGS].holds(word))


def is_known(index: Searchable, word: str) -> bool:
    """Whether any document holds a word; punctuation is in all of them."""
    if index.speller is not None:
        return is_punctuation(word) or index.speller.knows(word)
    return is_punctuation(word) or index.preprocessor.terms.df(word) > 0


def analyze_query(index: Searchable, text: str, typos: Typos = "auto") -> AnalyzedQuery:
    """Reads a query as an index searches it.

    Args:
        index: whose words decide what is a slip.
        text: any string.
        typos: `off` searches it as it came.
    """
    preprocessor, speller = index.preprocessor, index.speller
    words = preprocessor.pieces.words(text)
    if typos == "off" or speller is None or not speller.suspects(words):
        return AnalyzedQuery(text, preprocessor.query_words(words))
    correction = speller.correct(text)
    if not correction.words:
        return AnalyzedQuery(text, preprocessor.query_words(words))
    return AnalyzedQuery(correction.text, preprocessor.query(correction.text), correction.words)
