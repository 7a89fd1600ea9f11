"""Where the words of a text stand in it, as it was written: for marking them.

The words are those of `BertWords.whole_words`. What one character becomes there (nothing, part of a word, a blank, a word by
itself) does not depend on its neighbours, so each is asked for once and remembered; the tokenisers' own offsets take seconds
for a long text of CJK characters.
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
"""Characters that are looked through together; enough that a look costs little, few enough that most hold none of the words."""
# In what is left, lower-casing and cutting is all that BERT's splitting does, and lengths stay as they are.
_NOT_PLAIN = re.compile(r"[^\t\n\r -~]+")
_NO_LETTER = re.compile("[^a-zA-Z0-9]")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_MARKS = frozenset(punctuation)
_PLAIN_WORDS = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_MARK = ("mark",)
# No vocabulary changes how text is split, so what is remembered of characters is for all.
_SPLIT = BertWords()


class Span(NamedTuple):
    """A word and its characters in the text, `text[start:end]`."""

    word: str
    start: int
    end: int


class WordSpans:
    """Finds words in texts; holds no text.

    Args:
        pieces: splits text into words.
    """

    def __init__(self, pieces: BertWords) -> None:
        self.pieces = pieces

    def of_url(self, url: str, spec: FieldSpec, among: Container[str]) -> Iterator[Span]:
        """Words of a url as preprocessing sees them: each is cut out of it first.

        Args:
            url: the value.
            spec: of its field.
            among: the words that are wanted.
        """
        for run, start in url_runs(url, keep_digits=spec.keep_digits):
            for word in self.pieces.whole_words(run):
                if word in among:
                    yield Span(word, start, start + len(run))

    def stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Starts and ends of the parts of a text, of some length and one after the other, between which no word stands."""
        start = 0
        while start < len(text):
            end = start + STRETCH
            while (other := _NO_LETTER.search(text, end)) is not None and not _stands_apart(other[0]):
                end = other.end()
            end = len(text) if other is None else other.start()
            yield start, end
            start = end

    def different_words(self, text: str) -> set[str]:
        """The words of a text, each once, without marks of ASCII; many times as fast as `of_text`."""
        return set(text.translate(_WRITTEN).split(" "))

    def of_text(self, text: str, among: Set[str] | None = None) -> Iterator[Span]:
        """Every word of a text in order, or those among some, in time linear in its length.

        Accents written as characters of their own belong to the span of the letter before them.
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
        """Words of a stretch of any characters, one by one."""
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
    """A character's number -> what it becomes where words stand between blanks, for `str.translate`."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        parts = _parts_of(character)
        if is_punctuation(character) and character.isascii():
            written = (
                " "  # a text of ASCII characters that stay one each is translated a hundred times as fast
            )
        else:
            written = "" if parts is _MARK else " ".join(parts)
        if len(self) >= CACHED_CHARACTERS:
            self.clear()
        self[number] = written
        return written


@lru_cache(maxsize=CACHED_CHARACTERS)
def _parts_of(character: str) -> tuple[str, ...]:
    """What a character adds to the word before it, the words that it is, and what it begins the next one with."""
    first, *words = _SPLIT.whole_words(f"a{character}b")
    if words:
        return first[1:], *words[:-1], words[-1][:-1]
    return _MARK if unicodedata.category(character).startswith("M") and first == "ab" else (first[1:-1],)


def _stands_apart(character: str) -> bool:
    """Whether a character ends the word before it and adds nothing to it."""
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
    """Where a word stands by itself in a text of ASCII characters."""
    place = lower.find(word)
    while place >= 0:
        end = place + len(word)
        if word in _MARKS or not (lower[place - 1 : place] in _LETTERS or lower[end : end + 1] in _LETTERS):
            yield place
        place = lower.find(word, end)
