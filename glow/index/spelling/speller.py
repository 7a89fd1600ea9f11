"""Corrects the words of a query that the index does not know, where the index settles what was meant."""

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
"""Words of one query; more that nobody knows are no slips."""
_JOINTS = frozenset("._/\\@#:=$`<>-~^*+|&%'0123456789")
"""Beside a word these make it a part of a name, a number, a path or code."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A query as it is searched.

    Attributes:
        text: with its words corrected; as it came where nothing was.
        words: unknown word -> what is searched in its place.
    """

    text: str
    words: dict[str, str]


class Speller:
    """Knows the words of one index version; safe to use from many threads.

    Args:
        pieces: splits text into words.
        terms: the index' term table, of the words of all fields.
        tables: of the version's parts.
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

        # Not of a method: that would hold the mapped files in a circle, which only the collector ends.
        def search(word: str) -> bool:
            return terms.df(word) > 0 or any(table.has(word) for table in tables)

        self._search = search
        self._cached = lru_cache(maxsize=CACHED_WORDS)(search)

    def knows(self, word: str) -> bool:
        """Whether any document holds a word, or another form of it where the index holds stems."""
        held = self._cached(word) if len(word) <= LONGEST_WORD else self._search(word)
        return held or self._is_form(word)

    def suspects(self, words: Sequence[str]) -> bool:
        """Whether any word of a query may be a slip: one that people misspell, and that no document holds."""
        cached = self._cached
        return any(
            SHORTEST_WORD <= len(word) <= LONGEST_WORD and not cached(word) and word.isalpha()
            for word in words
        )

    def correct(self, text: str) -> Correction:
        """The query with every slip corrected that the index settles; names, numbers, code and short words stay.

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
        """The likeliest of the words that are one edit away; None where there is none."""
        dfs: dict[str, int] = {}
        for table in self._tables:
            for other, df in table.candidates(word).items():
                dfs[other] = dfs.get(other, 0) + df
        return max(dfs, key=lambda other: (_likelihood(word, other, dfs[other]), other), default=None)

    def _is_form(self, word: str) -> bool:
        """Whether an unknown word is another form of a known one, in an index that holds their stem.

        A stem alone says too little: that of "sever" is held by "several", and the one of "fille" by "filled".
        """
        if self._impacts is None or not is_lexical(word) or not self._impacts.holds(word):
            return False
        others = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
        term = self._impacts.analyzer.term
        return any(self._cached(other) and term(other) == term(word) for other in [*others, f"{word}s"])


def _is_name(text: str, start: int, end: int, written: str) -> bool:
    """Whether a word is written as names and code are: joined to something, or with capitals inside."""
    before, after = text[start - 1 : start], text[end : end + 1]
    is_joined = before in _JOINTS if before else False
    if after in _JOINTS and after:
        is_joined = is_joined or text[end + 1 : end + 2].strip() != ""
    return is_joined or not (written.islower() or written.isupper() or written[1:].islower())


def _likelihood(word: str, other: str, df: int) -> float:
    """How likely a slip made one word of another: by how common that is, and by what people slip at.

    The first letter is rarely wrong, and two letters that are swapped leave all of them in the word.
    """
    score = math.log1p(df)
    if word[0] != other[0]:
        score -= FIRST_LETTER
    if sorted(word) == sorted(other):
        score += SWAPPED
    return score


FIRST_LETTER, SWAPPED = 2.0, 1.0
"""In units of a document frequency's logarithm."""
