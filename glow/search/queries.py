"""Analyzes a query before the search: corrects typos, then makes the query encoder's input.

The service, evaluation, the gate and tuning all analyze queries here, so evaluation measures what is served.
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
"""`auto` corrects words that the index does not know if the index suggests a clear correction; `off` does not."""


@dataclass(frozen=True, slots=True, eq=False)
class AnalyzedQuery:
    """A query as it is searched.

    Attributes:
        text: after correction, for lexical and dense retrieval.
        tokens: the query encoder's input.
        corrected: unknown word -> its correction.
    """

    text: str
    tokens: WeightedTokens
    corrected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """Input of a hybrid search.

    Attributes:
        text: for lexical retrieval.
        vector: float32 [D], L2-normalized.
        tokens: for late interaction; None: it is left out.
    """

    text: str
    vector: NDArray[np.float32]
    tokens: QueryTokens | None = None

    @classmethod
    def of(cls, reading: AnalyzedQuery, encoded: EncodedText) -> "EncodedQuery":
        """Combines a query with its encoder's outputs."""
        tokens = None if encoded.tokens is None else QueryTokens.of(reading.tokens, encoded.tokens)
        return cls(reading.text, encoded.vector, tokens)


def unknown_words(index: Searchable, tokens: WeightedTokens) -> tuple[str, ...]:
    """Words of a query that no document holds, nor any word of the same stem; none if the index has no lexical component."""
    if not index.holds(POSTINGS):
        return ()
    words = dict.fromkeys(word for word in tokens.words if is_lexical(word))
    return tuple(word for word in words if not index[POSTINGS].holds(word))


def is_known(index: Searchable, word: str) -> bool:
    """Whether any document holds a word; punctuation always counts as known."""
    if index.speller is not None:
        return is_punctuation(word) or index.speller.knows(word)
    return is_punctuation(word) or index.preprocessor.terms.df(word) > 0


def analyze_query(index: Searchable, text: str, typos: Typos = "auto") -> AnalyzedQuery:
    """Analyzes a query for an index.

    Args:
        index: its words decide what is a typo.
        text: any string.
        typos: `off` leaves typos as they are.
    """
    preprocessor, speller = index.preprocessor, index.speller
    words = preprocessor.pieces.words(text)
    if typos == "off" or speller is None or not speller.suspects(words):
        return AnalyzedQuery(text, preprocessor.query_words(words))
    correction = speller.correct(text)
    if not correction.words:
        return AnalyzedQuery(text, preprocessor.query_words(words))
    return AnalyzedQuery(correction.text, preprocessor.query(correction.text), correction.words)
