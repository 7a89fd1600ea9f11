"""Positions of a text's words in the original text, for highlighting.

The words are those of `BertWords.whole_words`. There, each character becomes nothing, part of a word, a blank or a
word of its own, independently of its neighbors; so each is computed once and cached. The tokenizers' own offsets take
seconds for a long text of CJK characters.
"""

import re
import unicodedata
from collections.abc import Container, Iterator, Set
from functools import lru_cache
from string import punctuation
from typing import NamedTuple

from glow.schema import FieldSpec
from glow.text.urls import url_runs
from glow.text.words import BertWords, is_punctuation

__all__ = ["Span", "WordSpans"]

CACHED_CHARACTERS = 20_000
STRETCH = 1_000
"""Characters that are checked together: enough to make a check cheap, few enough that most have none of the words."""
# In all other text, BERT's splitting only lower-cases and cuts, and lengths stay the same.
_NOT_PLAIN = re.compile(r"[^\t\n\r -~]+")
_NO_LETTER = re.compile("[^a-zA-Z0-9]")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_MARKS = frozenset(punctuation)
_PLAIN_WORDS = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_MARK = ("mark",)
# No vocabulary changes how text is split, so all share the cache of characters.
_SPLIT = BertWords()


class Span(NamedTuple):
    """A word and its characters in the text, `text[start:end]`."""

    word: str
    start: int
    end: int


class WordSpans:
    """Finds words in texts; keeps no text.

    Args:
        pieces: splits text into words.
    """

    def __init__(self, pieces: BertWords) -> None:
        self.pieces = pieces

    def of_url(self, url: str, spec: FieldSpec, among: Container[str]) -> Iterator[Span]:
        """Words of a url as preprocessing splits it.

        Args:
            url: the value.
            spec: of its field.
            among: the wanted words.
        """
        for run, start in url_runs(url, keep_digits=spec.keep_digits):
            for word in self.pieces.whole_words(run):
                if word in among:
                    yield Span(word, start, start + len(run))

    def stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Starts and ends of consecutive parts of a text, cut where no word is; their lengths vary."""
        start = 0
        while start < len(text):
            end = start + STRETCH
            while (other := _NO_LETTER.search(text, end)) is not None and not _stands_apart(other[0]):
                end = other.end()
            end = len(text) if other is None else other.start()
            yield start, end
            start = end

    def different_words(self, text: str) -> set[str]:
        """The distinct words of a text, without ASCII punctuation; many times as fast as `of_text`."""
        return set(text.translate(_WRITTEN).split(" "))

    def of_text(self, text: str, among: Set[str] | None = None) -> Iterator[Span]:
        """Every word of a text in order, or only the wanted ones, in time linear in its length.

        Combining accents belong to the span of the letter before them.
        """
        start = 0
        while (odd := _NOT_PLAIN.search(text, start)) is not None:
            # No step of BERT's looks across a blank: only the stretch without one needs the slow way.
            first = text.rfind(" ", start, odd.start()) + 1 or start
            last = text.find(" ", odd.end())
            last = len(text) if last < 0 else last
            yield from _plain(text, start, first, among)
            if among is None:
                yield from self._odd(text, first, last)
            elif self._may_hold(text[first:last], among):
                yield from (span for span in self._odd(text, first, last) if span.word in among)
            start = last
        yield from _plain(text, start, len(text), among)

    def _may_hold(self, stretch: str, words: Set[str]) -> bool:
        return not (self.different_words(stretch).isdisjoint(words) and _MARKS.isdisjoint(words))

    def _odd(self, text: str, first: int, last: int) -> Iterator[Span]:
        """Words of a stretch with arbitrary characters, one by one."""
        letters: list[str] = []
        begin = end = first
        is_open = False
        for place in range(first, last):
            parts = _parts_of(text[place])
            if parts is _MARK:
                end += letters != [] and end == place
                continue
            for number, part in enumerate(parts):
                if number:
                    is_open = False
                if not part:
                    continue
                if is_open:
                    letters.append(part)
                else:
                    if letters:
                        yield Span("".join(letters), begin, end)
                    letters, begin, is_open = [part], place, True
                end = place + 1
        if letters:
            yield Span("".join(letters), begin, end)


class _Written(dict[int, str]):
    """Code point -> replacement that puts blanks around words, for `str.translate`."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        parts = _parts_of(character)
        if is_punctuation(character) and character.isascii():
            written = " "  # ASCII text with one-to-one replacements is translated a hundred times as fast
        else:
            written = "" if parts is _MARK else " ".join(parts)
        if len(self) >= CACHED_CHARACTERS:
            self.clear()
        self[number] = written
        return written


@lru_cache(maxsize=CACHED_CHARACTERS)
def _parts_of(character: str) -> tuple[str, ...]:
    """What a character adds to the word before it, the words that it forms, and the start of the next one."""
    first, *words = _SPLIT.whole_words(f"a{character}b")
    if words:
        return first[1:], *words[:-1], words[-1][:-1]
    return _MARK if unicodedata.category(character).startswith("M") and first == "ab" else (first[1:-1],)


def _stands_apart(character: str) -> bool:
    """Whether a character ends the word before it without adding to it."""
    parts = _parts_of(character)
    return len(parts) > 1 and not parts[0]


_WRITTEN = _Written()


def _plain(text: str, start: int, end: int, among: Set[str] | None) -> Iterator[Span]:
    lower = text[start:end].lower()
    if among is None:
        for match in _PLAIN_WORDS.finditer(lower):
            yield Span(match[0], start + match.start(), start + match.end())
        return
    places = sorted((place, word) for word in among for place in _places(lower, word))
    for place, word in places:
        yield Span(word, start + place, start + place + len(word))


def _places(lower: str, word: str) -> Iterator[int]:
    """Positions of a word between blanks in an ASCII text."""
    place = lower.find(word)
    while place >= 0:
        end = place + len(word)
        if word in _MARKS or not (lower[place - 1 : place] in _LETTERS or lower[end : end + 1] in _LETTERS):
            yield place
        place = lower.find(word, end)
