"""Corrects the words of a query that the index does not know, if the index suggests a clear correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from glow.index.postings import ImpactsView
from glow.index.spelling.build import LONGEST_WORD, SHORTEST_WORD, is_spelled
from glow.index.spelling.table import SpellingTable
from glow.text import TermTable, WordPieces, WordSpans, is_lexical

__all__ = ["Correction", "Speller"]

CACHED_WORDS = 100_000
ENDINGS = ("s", "es", "d", "ed", "ing")
MOST_CORRECTED = 8
"""Most unknown words of one query to correct; with more, they are not typos."""
_JOINTS = frozenset("._/\\@#:=$`<>-~^*+|&%'0123456789")
"""A word next to these is part of a name, a number, a path or code."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A query after correction.

    Attributes:
        text: with its words corrected; unchanged without corrections.
        words: unknown word -> its correction.
    """

    text: str
    words: dict[str, str]


class Speller:
    """Checks and corrects words with one index version; safe to use from many threads.

    Args:
        pieces: splits text into words.
        terms: the index's term statistics, of the words of all fields.
        tables: of the version's segments.
        impacts: its lexical index, which may know other forms of a word by its stem; None: it has none.
    """

    def __init__(
        self,
        pieces: WordPieces,
        terms: TermTable,
        tables: Sequence[SpellingTable],
        impacts: ImpactsView | None = None,
    ) -> None:
        self._spans = WordSpans(pieces)
        self._tables = tuple(tables)
        self._impacts = impacts

        # A cached method would keep the mapped files in a reference cycle, which only the collector frees.
        def search(word: str) -> bool:
            return terms.df(word) > 0 or any(table.has(word) for table in tables)

        self._search = search
        self._cached = lru_cache(maxsize=CACHED_WORDS)(search)

    def knows(self, word: str) -> bool:
        """Whether any document has a word, or another form of it if the index has stems."""
        held = self._cached(word) if len(word) <= LONGEST_WORD else self._search(word)
        return held or self._is_form(word)

    def suspects(self, words: Sequence[str]) -> bool:
        """Whether any word of a query may be a typo: correction covers it, and no document has it."""
        cached = self._cached
        return any(
            SHORTEST_WORD <= len(word) <= LONGEST_WORD and not cached(word) and word.isalpha()
            for word in words
        )

    def correct(self, text: str) -> Correction:
        """The query with its typos corrected if the index is clear; names, numbers, code and short words do not change.

        Args:
            text: any string.
        """
        if not self.suspects(self._spans.pieces.whole_words(text)):
            return Correction(text, {})
        words: dict[str, str] = {}
        parts, end = [], 0
        for span in self._spans.of_text(text):
            written = text[span.start : span.end]
            if not is_spelled(span.word) or _is_name(text, span.start, span.end, written):
                continue
            if span.word not in words:
                if len(words) == MOST_CORRECTED or self._cached(span.word):
                    continue
                meant = None if self._is_form(span.word) else self._meant(span.word)
                if meant is None:
                    continue
                words[span.word] = meant
            parts += [text[end : span.start], words[span.word]]
            end = span.end
        return Correction("".join([*parts, text[end:]]), words) if words else Correction(text, {})

    def _meant(self, word: str) -> str | None:
        """The most likely of the words one edit away; None if there is none."""
        dfs: dict[str, int] = {}
        for table in self._tables:
            for other, df in table.candidates(word).items():
                dfs[other] = dfs.get(other, 0) + df
        return max(dfs, key=lambda other: (_likelihood(word, other, dfs[other]), other), default=None)

    def _is_form(self, word: str) -> bool:
        """Whether an unknown word is another form of a known one, in an index with their stem.

        A stem alone is not enough: "several" has the stem of "sever", and "filled" that of "fille".
        """
        if self._impacts is None or not is_lexical(word) or not self._impacts.holds(word):
            return False
        others = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
        term = self._impacts.analyzer.term
        return any(self._cached(other) and term(other) == term(word) for other in [*others, f"{word}s"])


def _is_name(text: str, start: int, end: int, written: str) -> bool:
    """Whether a word is written like names and code: joined to something, or with capitals inside."""
    before, after = text[start - 1 : start], text[end : end + 1]
    is_joined = before in _JOINTS if before else False
    if after in _JOINTS and after:
        is_joined = is_joined or text[end + 1 : end + 2].strip() != ""
    return is_joined or not (written.islower() or written.isupper() or written[1:].islower())


def _likelihood(word: str, other: str, df: int) -> float:
    """Likelihood that a typo turned one word into the other: from the word's frequency and the kind of typo.

    The first letter is rarely wrong; swapped letters are likely, because no letter is lost.
    """
    score = math.log1p(df)
    if word[0] != other[0]:
        score -= FIRST_LETTER
    if sorted(word) == sorted(other):
        score += SWAPPED
    return score


FIRST_LETTER, SWAPPED = 2.0, 1.0
"""In units of the logarithm of a document frequency."""
