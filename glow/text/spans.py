"""Positions of a text's words in the original text, for highlighting.

The words are those of `BertWords.whole_words`. There, each character becomes nothing, part of a word, a blank or a
word of its own, independently of its neighbors; so each is computed once and cached. The tokenizers' own offsets take
seconds for a long text of CJK characters.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from string import punctuation
from typing import NamedTuple

from glow.schema import FieldSpec
from glow.text.analyzer import Analyzer
from glow.text.words import BertWords, is_punctuation, url_runs

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
    """Finds words in texts; keeps no text."""

    def __init__(self, pieces: BertWords) -> None:
        self.pieces = pieces

    def of_url(self, url: str, spec: FieldSpec, among: Container[str]) -> Iterator[Span]:
        """Words of a url as preprocessing splits it."""
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
        """Every word of a text in order, or only some, in time linear in its length.

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
            elif not (self.different_words(text[first:last]).isdisjoint(among) and _MARKS.isdisjoint(among)):
                yield from (span for span in self._odd(text, first, last) if span.word in among)
            start = last
        yield from _plain(text, start, len(text), among)

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


OTHER_WORDS = 20_000
"""Most words of other terms to remember; a page of ordinary hits has fewer."""


class TermFilter:
    """The words that an analyzer maps to some terms."""

    def __init__(self, analyzer: Analyzer, terms: Set[str]) -> None:
        self.term, self._terms = analyzer.term, terms
        # No analyzer changes the start of a word of ASCII letters, so most words can be skipped.
        self._first = frozenset(term[:1] for term in terms)
        self._marks = {mark: term for mark in punctuation if (term := analyzer.term(mark)) in terms}
        self._others: set[str] = set()

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.term(word) in self._terms

    def among(self, words: Set[str], text: str) -> dict[str, str]:
        """Those of a text's words (`WordSpans.different_words`) that it holds -> their terms; marks are sought in the text."""
        first, term_of, terms, by_word = self._first, self.term, self._terms, dict[str, str]()
        for word in words - self._others:
            start = word[:1]
            if (start in first or start > "\x7f") and (term := term_of(word)) in terms:
                by_word[word] = term
            elif len(self._others) < OTHER_WORDS:
                self._others.add(word)
        by_word.update((mark, term) for mark, term in self._marks.items() if mark in text)
        return by_word


class TermSpans:
    """The words of some terms in a value of a field, or in plain text, each as its term, in order; can be iterated repeatedly."""

    def __init__(self, words: WordSpans, text: str, spec: FieldSpec | None, among: TermFilter) -> None:
        self.terms: set[str] = set()  # those that have a word in the text
        # Starts and ends of the parts of the text with such words, whose spans are computed at the first use
        self._stretches: list[tuple[int, int, Callable[[], list[Span]]]] = []
        if spec is not None and spec.kind == "url":
            spans = [span._replace(word=among.term(span.word)) for span in words.of_url(text, spec, among)]
            self.terms.update(span.word for span in spans)
            self._stretches.append((0, len(text), lambda: spans))
            return
        for start, end in words.stretches(text):
            part = text[start:end]
            if terms := among.among(words.different_words(part), part):
                self.terms.update(terms.values())
                self._stretches.append((start, end, cache(partial(_spans_of, words, part, start, terms))))

    def __iter__(self) -> Iterator[Span]:
        for _, _, spans in self._stretches:
            yield from spans()

    def within(self, start: int, end: int) -> Iterator[Span]:
        """Those that are completely in `text[start:end]`."""
        for first, last, spans in self._stretches:
            if first < end and start < last:
                for span in spans():
                    if start <= span.start and span.end <= end:
                        yield span
                        start = span.end  # a word found as two terms counts once


def _spans_of(words: WordSpans, part: str, start: int, terms: Mapping[str, str]) -> list[Span]:
    places = words.of_text(part, terms.keys())
    return [Span(terms[word], start + begin, start + end) for word, begin, end in places]


SEEN_SHARE = 0.25
_ROUNDING = 1e-9
_CLOSING = " \t\r\n.,;:!?)]}"
"""Characters that should not begin a snippet."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch `text[start:end]`, its total weight, and the characters from its first word's to its last's."""

    worth: float
    start: int
    end: int
    first: int
    last: int


def best_windows(
    spans: Iterable[Span],  # in order; read once per window, and only until nothing better can follow
    worth: Mapping[str, float],  # word -> weight > 0; other words do not count
    count: int,
    width: int,  # characters of a window; a longer word is kept whole
    length: int,
) -> list[Window]:
    """Chooses windows that do not overlap, best first; each takes at most one pass over the words."""
    chosen: list[Window] = []
    shown: set[str] = set()
    while worth and len(chosen) < count:
        now = {word: value * (SEEN_SHARE if word in shown else 1.0) for word, value in worth.items()}
        free = (
            span for span in spans if all(span.end <= each.start or span.start >= each.end for each in chosen)
        )
        value, run = _best_run(free, now, width)
        if not run:
            break
        chosen.append(_with_margins(value, run[0].start, run[-1].end, width, length, chosen))
        shown.update(span.word for span in run)
    return chosen


def _best_run(spans: Iterable[Span], worth: Mapping[str, float], width: int) -> tuple[float, list[Span]]:
    """Weight and words of the best run within `width`; of ties, the earliest."""
    counts = dict.fromkeys(worth, 0)
    run: deque[Span] = deque()
    best, best_run, value = -1.0, list[Span](), 0.0
    most = sum(worth.values())
    for span in spans:
        if span.word not in worth:
            continue
        run.append(span)
        counts[span.word] += 1
        if counts[span.word] == 1:
            value += worth[span.word]
        while len(run) > 1 and span.end - run[0].start > width:
            left = run.popleft().word
            counts[left] -= 1
            if not counts[left]:
                value -= worth[left]
        if value > best + _ROUNDING:
            best, best_run = value, list(run)
            if best >= most - _ROUNDING:  # a window with every word; none can be better
                break
    return best, best_run


def _with_margins(
    worth: float, first: int, last: int, width: int, length: int, others: Sequence[Window]
) -> Window:
    """Extends a window by equal margins, up to the text's ends and to other windows."""
    least = max((other.end for other in others if other.end <= first), default=0)
    most = min((other.start for other in others if other.start >= last), default=length)
    room = max(width - (last - first), 0)
    start = max(least, first - room // 2)
    end = min(most, start + max(width, last - first))
    start = max(least, min(start, end - width))
    return Window(worth, min(start, first), max(end, last), first, last)


def trim(text: str, window: Window, spans: WordSpans) -> tuple[int, int]:
    """Moves a window's bounds inwards to word ends, without white space around them; its own words stay complete."""
    start, end = window.start, window.end
    if 0 < start < window.first:
        # One character more tells whether a word continues.
        before = next(spans.of_text(text[start - 1 : window.first]), None)
        if before and before.start == 0 and before.end > 1:
            start += before.end - 1
    if window.last < end < len(text):
        # No word contains a blank, so only the end can be cut.
        place = max(text.rfind(" ", window.last, end + 1), window.last)
        *_, after = (None, *spans.of_text(text[place : end + 1]))
        whole = end + 1 - place
        if after and after.end == whole and after.start < whole - 1:
            end = place + after.start
    stretch = text[start:end].rstrip()
    start, end = start + len(stretch) - len(stretch.lstrip(_CLOSING if start else None)), start + len(stretch)
    return (start, end) if start < end else (window.start, window.end)  # one word without an end
