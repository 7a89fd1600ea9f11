"""A query as it is searched: its words, what else counts as each, and what its documents must hold or lack."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.ranking import RowMask
from glow.index.spelling import MOST_COMPLETED, Correction
from glow.search.synonyms import NO_SYNONYMS, Synonyms
from glow.search.syntax import Constraint, Part, fields_of, parse, searched_text
from glow.text import STOP_WORDS, WeightedTokens, is_punctuation, searched_words

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
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by word of the query
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


_LAST_WORD = re.compile(r"[^\W_]+\Z")
COMPANIONS = 32
"""Documents of the other words, in which the best completion of a prefix is looked for."""


class Prefix(NamedTuple):
    """The end of a query that is still being typed."""

    typed: str  # as it is written
    word: str  # as preprocessing yields it
    completions: tuple[str, ...]  # words that begin with it, most frequent first, without itself
    is_known: bool  # whether it is a word of the index itself


def prefix_of(index: Index, text: str, most: int = MOST_COMPLETED) -> Prefix | None:
    """The prefix that a text ends in, if words of the index begin with it, or with one an edit away."""
    match, speller = _LAST_WORD.search(text), index.speller
    if match is None or speller is None:
        return None
    words = index.preprocessor.pieces.words(match[0])
    if len(words) != 1 or (words[0] in STOP_WORDS and text[: match.start()].strip()):
        return None
    word, term = words[0], index.analyzer.term
    is_known = speller.knows(word)
    own = {word, term(word)} if is_known else set()
    likely = speller.completions(word, most)
    completions = tuple(each for each in likely if own.isdisjoint((each, term(each))))
    return Prefix(match[0], word, completions, is_known) if completions else None


def beside(
    index: Index, words: Sequence[str], others: Sequence[str], allowed: RowMask | None = None
) -> dict[str, float]:
    """What each of the others adds to the scores of the first documents that hold all words; those that none holds are left out."""
    impacts = index[POSTINGS]
    _, rows = impacts.search(words, COMPANIONS, allowed, index.order)
    rows = rows[(impacts.by_word(words, rows) > 0).all(1)]
    sums = impacts.by_word(others, rows).sum(0).tolist() if len(rows) else []
    return {other: each for other, each in zip(others, sums, strict=False) if each}


def analyze_query(
    index: Index,  # its words decide what is a typo
    text: str,  # any string
    typos: Typos = "auto",  # words of phrases and excluded words always stay as they are
    syntax: Syntax = "plain",  # `auto` needs an index with a lexical component
    *,
    prefix: bool = False,  # the last word is the start of one; an unknown one is replaced by its best completion
    synonyms: Synonyms = NO_SYNONYMS,  # what else counts as words of the query
) -> AnalyzedQuery:
    """Analyzes a query for an index."""
    preprocessor, speller = index.preprocessor, index.speller
    searched, parts = text, tuple[Part, ...]((Part(text),))
    if syntax == "auto" and index.holds(POSTINGS) and preprocessor.weighting.unit == "word":
        searched, parts = parse(text, fields_of(index))
    constraints = tuple(filter(None, (part.constraint(preprocessor.pieces) for part in parts)))
    started = prefix_of(index, parts[-1].text) if prefix and parts[-1].is_plain else None
    if started is not None:
        parts = (*parts[:-1], Part(parts[-1].text.removesuffix(started.typed)))
        searched = searched.removesuffix(started.typed)
    end = "" if started is None else started.typed
    corrected: dict[str, str] = {}
    if typos != "off" and speller is not None and speller.suspects(preprocessor.pieces.words(searched)):
        renewed = []
        for part in parts:
            correction = speller.correct(part.text) if part.may_be_corrected else Correction(part.text, {})
            corrected |= correction.words
            renewed.append(replace(part, text=correction.text))
        if corrected:
            searched = searched_text([*renewed, Part(end)]).removesuffix(end)
    others: dict[str, tuple[tuple[str, ...], ...]] = {}
    if started is not None:
        word = started.word
        if not started.is_known:
            end = word = _best_completion(index, searched, started.completions)
        others[word] = tuple((each,) for each in started.completions if each != word)
    words = preprocessor.pieces.words(searched + end)
    alike = synonyms.find(index, words)
    return AnalyzedQuery(
        text=searched + end,
        tokens=preprocessor.query_words(words),
        corrected=corrected,
        others={
            word: (*alike.others.get(word, ()), *others.get(word, ())) for word in {*alike.others, *others}
        },
        constraints=constraints,
        synonyms=alike.names,
        completed=() if started is None else started.completions,
    )


def _best_completion(index: Index, head: str, completions: Sequence[str]) -> str:
    """The completion that adds most to documents of the other words; the most frequent one if none does."""
    words = list(dict.fromkeys(searched_words(index.preprocessor.pieces.words(head))))
    sums = beside(index, words, completions) if words and not index[POSTINGS].is_remote else {}
    return max(sums, key=sums.__getitem__, default=completions[0])
