"""Where the words of a text stand in it, as it was written: for marking them.

The words are those of `BertWords.whole_words`. What one character becomes there (nothing, part of a word, a blank, a word by
itself) does not depend on its neighbours, so each is asked for once and remembered; the tokenisers' own offsets take seconds
for a long text of CJK characters.
"""

import re
import unicodedata
from collections.abc import Container, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from glow.schema import FieldSpec
from glow.text.urls import url_runs
from glow.text.words import BertWords

__all__ = ["Span", "WordSpans"]

CACHED_CHARACTERS = 20_000
# In what is left, lower-casing and cutting is all that BERT's splitting does, and lengths stay as they are.
_NOT_PLAIN = re.compile(r"[^\t\n\r -~]+")
_PLAIN_WORDS = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_MARK = ("mark",)


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
        # Of the pieces alone: a cache of a method would hold its owner in a circle, which only the collector ends.
        self._parts = lru_cache(maxsize=CACHED_CHARACTERS)(partial(_parts_of, pieces))

    def of_field(self, text: str, spec: FieldSpec | None, among: Container[str]) -> Iterator[Span]:
        """Words of one value of a field as preprocessing sees them: a url's are cut out of it first.

        Args:
            text: the value.
            spec: of the field; None for plain text.
            among: the words that are wanted.
        """
        if spec is None or spec.kind != "url":
            yield from self.of_text(text, among)
            return
        for run, start in url_runs(text, keep_digits=spec.keep_digits):
            for word in self.pieces.whole_words(run):
                if word in among:
                    yield Span(word, start, start + len(run))

    def of_text(self, text: str, among: Container[str] | None = None) -> Iterator[Span]:
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
            odd_spans = self._odd(text, first, last)
            yield from odd_spans if among is None else (span for span in odd_spans if span.word in among)
            start = last
        yield from _plain(text, start, len(text), among)

    def _odd(self, text: str, first: int, last: int) -> Iterator[Span]:
        """Words of a stretch of any characters, one by one."""
        letters: list[str] = []
        begin = end = first
        is_open = False
        for place in range(first, last):
            parts = self._parts(text[place])
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


def _parts_of(pieces: BertWords, character: str) -> tuple[str, ...]:
    """What a character adds to the word before it, the words that it is, and what it begins the next one with."""
    first, *words = pieces.whole_words(f"a{character}b")
    if words:
        return first[1:], *words[:-1], words[-1][:-1]
    return _MARK if unicodedata.category(character).startswith("M") and first == "ab" else (first[1:-1],)


def _plain(text: str, start: int, end: int, among: Container[str] | None) -> Iterator[Span]:
    for match in _PLAIN_WORDS.finditer(text[start:end].lower()):
        word = match[0]
        if among is None or word in among:
            yield Span(word, start + match.start(), start + match.end())
