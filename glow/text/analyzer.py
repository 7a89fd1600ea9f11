"""Analyzers: turn words into terms of a lexical index, for documents and queries alike.

`plain` keeps words as they are. `english` folds the several Unicode forms of a letter, then takes the stem by Snowball's
English rules (Porter 2001, https://snowballstem.org/algorithms/english/stemmer.html), so that "directories" finds
"directory". An index names its analyzer, which its documents, queries, snippets and explanations all use.
"""

import threading
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import Stemmer

from glow.errors import ConfigError
from glow.text.lexical import is_lexical
from glow.text.terms import DEFAULT_MAX_WORDS, MAX_WORD_CHARACTERS, TermCounter, TermTable
from glow.text.words import Unit

__all__ = ["DEFAULT_ANALYZER", "Analyzer", "AnalyzerName", "CorpusCounter", "check_analyzer"]

AnalyzerName = Literal["plain", "english"]
DEFAULT_ANALYZER: AnalyzerName = "english"
"""Default of a new index; docs/results/serving.md has the measurements."""
CACHED_WORDS = 100_000
_LETTERS = {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i", "ħ": "h"}
"""Letters that no Unicode normal form decomposes; case folding turns ß into ss."""
_LATIN = str.maketrans(_LETTERS)


class Analyzer:
    """Turns words into terms of a lexical index; safe to use from many threads.

    Args:
        name: `plain` or `english`.
    """

    def __init__(self, name: AnalyzerName = "plain") -> None:
        self.name: AnalyzerName = name
        # A cached method would make a reference cycle, which only the collector frees.
        stem = partial(_stem, Stemmer.Stemmer("english", 0), threading.Lock())
        self._cached = lru_cache(maxsize=CACHED_WORDS)(stem)

    def term(self, word: str) -> str:
        """The term of a word; words that are too long for the index stay as they are."""
        return word if self.name == "plain" or len(word) > MAX_WORD_CHARACTERS else self._cached(word)

    def table(self, words: TermTable) -> TermTable:
        """Term statistics computed from word statistics, for a collection whose documents are not available.

        A term's document frequency is the sum over its words, an upper bound, at most the number of documents.
        """
        if self.name == "plain":
            return words
        counts: dict[str, int] = {}
        for word, df in words.items():
            if is_lexical(word):
                term = self.term(word)
                counts[term] = min(counts.get(term, 0) + df, words.documents)
        return TermTable.from_counts(counts, words.documents, words.lengths, words.dropped_words)


class CorpusCounter:
    """Counts the words of a collection, and its terms, in bounded memory.

    Args:
        analyzer: turns words into terms.
        max_words: most distinct words, and most distinct terms, >= 1.
    """

    def __init__(self, analyzer: Analyzer, max_words: int = DEFAULT_MAX_WORDS) -> None:
        self._analyzer = analyzer
        self._words = TermCounter(max_words)
        self._terms = None if analyzer.name == "plain" else TermCounter(max_words)

    def add(self, fields: Mapping[str, Sequence[str]]) -> None:
        """Counts one document: field -> its words before truncation."""
        self._words.add(fields)
        if self._terms is not None:
            term = self._analyzer.term
            self._terms.add(
                {name: [term(word) for word in words if is_lexical(word)] for name, words in fields.items()}
            )

    def tables(self) -> tuple[TermTable, TermTable]:
        """The finished statistics of words and of terms; the same object if words are terms."""
        words = self._words.table()
        return words, words if self._terms is None else self._terms.table()


def check_analyzer(name: AnalyzerName, unit: Unit) -> None:
    """Rejects stemming for a model that counts subword tokens.

    Args:
        name: of the analyzer.
        unit: the model's unit of counts and weights (`Weighting.unit`).

    Raises:
        ConfigError: if stems of subword tokens are requested.
    """
    if name != "plain" and unit != "word":
        raise ConfigError(
            f"--analyzer {name}: this model weights subword tokens, which have no stems; use --analyzer plain"
        )


def _stem(stemmer: Any, lock: threading.Lock, word: str) -> str:
    with lock:  # a stemmer is not thread-safe
        stem: str = stemmer.stemWord(word if word.isascii() else _folded(word))
    return stem


def _folded(word: str) -> str:
    """A word without differences of Unicode form, case and accent."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", word).casefold())
    bare = "".join(letter for letter in parts if not unicodedata.combining(letter)).translate(_LATIN)
    return unicodedata.normalize("NFC", bare) or word
