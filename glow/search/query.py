"""A query as it is searched: its words, what else counts as each, and what its documents must hold or lack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from glow.index import Index
from glow.index.postings import POSTINGS
from glow.text import WeightedTokens, is_punctuation, searched_words

Typos = Literal["auto", "off"]
"""`auto` corrects words that the index does not know if the index suggests a clear correction; `off` does not."""


Syntax = Literal["auto", "plain"]
"""`auto` reads phrases, exclusions and fields in a query; `plain` reads words alone."""
Match = Literal["auto", "all", "any"]
"""Which documents match: with all words, with any, or `auto`: with all, or with most if too few hold all."""
Others = Mapping[str, tuple[tuple[str, ...], ...]]
"""Word of a query -> what else counts as it: synonyms and completions, each of one word or more."""
NO_OTHERS: Others = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Constraint:
    """What every hit must hold, or must not: a word or a phrase."""

    words: tuple[str, ...]  # as preprocessing yields them, in their order; at least one
    field: str = ""  # the text field that holds them; "" for any
    excluded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AnalyzedQuery:
    """A query as it is searched."""

    text: str  # without syntax and after correction, for lexical and dense retrieval
    tokens: WeightedTokens  # the query encoder's input
    corrected: Mapping[str, str] = field(default_factory=dict)  # unknown word -> its correction
    others: Others = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    synonyms: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # words of the query -> their synonyms
    completed: tuple[str, ...] = ()  # what a prefix stands for, most frequent first


def unknown_words(index: Index, tokens: WeightedTokens) -> tuple[str, ...]:
    """Words of a query that no document holds, nor any word of the same stem; none if the index has no lexical component."""
    if not index.holds(POSTINGS):
        return ()
    words, holds = dict.fromkeys(searched_words(tokens.words)), index[POSTINGS].holds
    return tuple(word for word in words if not holds(word))


def is_known(index: Index, word: str) -> bool:
    """Whether any document holds a word; punctuation always counts as known."""
    if index.speller is not None:
        return is_punctuation(word) or index.speller.knows(word)
    return is_punctuation(word) or index.preprocessor.terms.df(word) > 0


def analyze_query(index: Index, text: str, typos: Typos = "auto") -> AnalyzedQuery:
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
