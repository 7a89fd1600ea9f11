"""A query as it is searched: its words, what else counts as each, and what its documents must hold or lack."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.spelling import Correction
from glow.search.syntax import Constraint, Part, fields_of, parse, searched_text
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


def analyze_query(index: Index, text: str, typos: Typos = "auto", syntax: Syntax = "plain") -> AnalyzedQuery:
    """Analyzes a query for an index.

    Args:
        index: its words decide what is a typo.
        text: any string.
        typos: `off` leaves typos as they are; words of phrases and excluded words always stay.
        syntax: `auto` reads phrases, exclusions and fields, if the index has a lexical component.
    """
    preprocessor, speller = index.preprocessor, index.speller
    searched, parts = text, tuple[Part, ...]((Part(text),))
    if syntax == "auto" and index.holds(POSTINGS):
        searched, parts = parse(text, fields_of(index))
    found = (part.constraint(preprocessor.pieces) for part in parts)
    constraints = tuple(each for each in found if each is not None)
    words = preprocessor.pieces.words(searched)
    corrected: dict[str, str] = {}
    if typos != "off" and speller is not None and speller.suspects(words):
        corrections = [
            speller.correct(part.text) if part.may_be_corrected else Correction(part.text, {})
            for part in parts
        ]
        for each in corrections:
            corrected |= each.words
        if corrected:
            pairs = zip(parts, corrections, strict=True)
            searched = searched_text(replace(part, text=each.text) for part, each in pairs)
            words = preprocessor.pieces.words(searched)
    return AnalyzedQuery(
        searched, preprocessor.query_words(words), corrected=corrected, constraints=constraints
    )
