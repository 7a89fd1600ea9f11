"""Finds given words in a text in two steps: first which ones it has, in one cheap pass; their positions only on demand."""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from string import punctuation

from glow.schema import FieldSpec
from glow.text.analyzer import Analyzer
from glow.text.spans import Span, WordSpans

__all__ = ["FoundWords", "WantedWords"]

OTHER_WORDS = 20_000
"""Most words without a wanted term to remember; a page of ordinary hits has fewer."""
_START = attrgetter("start")


class WantedWords:
    """The words that an analyzer maps to given terms.

    Args:
        analyzer: turns words into terms.
        terms: the wanted ones.
    """

    def __init__(self, analyzer: Analyzer, terms: Set[str]) -> None:
        self._term, self._terms = analyzer.term, terms
        # No analyzer changes the start of a word of ASCII letters, so most words can be skipped.
        self._first = frozenset(term[:1] for term in terms)
        self._marks = {mark: made for mark in punctuation if (made := analyzer.term(mark)) in terms}
        self._others: set[str] = set()

    def term(self, word: str) -> str:
        """The term of a word."""
        return self._term(word)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._term(word) in self._terms

    def among(self, words: Set[str], text: str) -> dict[str, str]:
        """The wanted words among a text's words -> their terms.

        Args:
            words: of the text, as `WordSpans.different_words` yields them.
            text: searched for marks.
        """
        first, term, terms, found = self._first, self._term, self._terms, dict[str, str]()
        for word in words - self._others:
            start = word[:1]
            if (start in first or start > "\x7f") and (made := term(word)) in terms:
                found[word] = made
            elif len(self._others) < OTHER_WORDS:
                self._others.add(word)
        found.update((mark, made) for mark, made in self._marks.items() if mark in text)
        return found


@dataclass(slots=True)
class _Stretch:
    """A part of the text with wanted words; their spans are computed at the first use."""

    start: int
    end: int
    find: Callable[[], list[Span]]
    found: list[Span] | None = field(default=None)

    @property
    def spans(self) -> list[Span]:
        if self.found is None:
            self.found = self.find()
        return self.found


class FoundWords:
    """The wanted words of one value of a field, each as its term, in order; can be iterated repeatedly.

    Args:
        spans: finds words.
        text: the value.
        spec: of the field; None for plain text.
        wanted: the words.

    Attributes:
        terms: those that have a word in the text.
    """

    def __init__(self, spans: WordSpans, text: str, spec: FieldSpec | None, wanted: WantedWords) -> None:
        self.terms: set[str] = set()
        self._stretches: list[_Stretch] = []
        if spec is not None and spec.kind == "url":
            found = [span._replace(word=wanted.term(span.word)) for span in spans.of_url(text, spec, wanted)]
            self.terms.update(span.word for span in found)
            self._stretches.append(_Stretch(0, len(text), list, found))
            return
        for start, end in spans.stretches(text):
            part = text[start:end]
            terms = wanted.among(spans.different_words(part), part)
            if terms:
                self.terms.update(terms.values())
                self._stretches.append(_Stretch(start, end, _finder(spans, part, start, terms)))

    def add(self, spans: Sequence[Span]) -> None:
        """Adds further words of the text, each as a term, in order; the same word may be there already under another term."""
        for span in spans:
            self.terms.add(span.word)
            home = next((each for each in self._stretches if each.start <= span.start < each.end), None)
            if home is None:
                insort(self._stretches, _Stretch(span.start, span.end, list, [span]), key=_START)
            else:
                insort(home.spans, span, key=_START)

    def __iter__(self) -> Iterator[Span]:
        for stretch in self._stretches:
            yield from stretch.spans

    def within(self, start: int, end: int) -> Iterator[Span]:
        """Those that are completely in `text[start:end]`."""
        for stretch in self._stretches:
            if stretch.start < end and start < stretch.end:
                for span in stretch.spans:
                    if start <= span.start and span.end <= end:
                        yield span
                        start = span.end  # a word found as two terms counts once


def _finder(spans: WordSpans, part: str, start: int, terms: Mapping[str, str]) -> Callable[[], list[Span]]:
    return lambda: [
        Span(terms[word], start + begin, start + end)
        for word, begin, end in spans.of_text(part, terms.keys())
    ]
