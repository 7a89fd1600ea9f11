"""Snippets with similar words: finds the words of a text that match a query, and the start of the sentence to show."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, islice, takewhile

from glow.text.lexical import is_lexical
from glow.text.sentences import sentence_spans
from glow.text.spans import Span, WordSpans
from glow.text.windows import Window
from glow.text.words import WordPieces

__all__ = ["ReadText", "answering_words", "from_its_sentence"]

TOKEN_CHARACTERS = 8
"""To find a token, at most so many characters per token before it are split again; prose seldom needs more."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text as the document tower read it.

    Attributes:
        field: its only value is the text, or contains it.
        start: position of the text in that value.
        text: complete; the tower may have read only its beginning.
        answers: terms of a query -> the terms that a token of the text matches, and that token's number, from 0.
    """

    field: str
    start: int
    text: str
    answers: Callable[[Set[str]], Mapping[str, int]]


def answering_words(read: ReadText, terms: Set[str], spans: WordSpans, pieces: WordPieces) -> list[Span]:
    """The words of a text that match terms which it does not contain, each under that term, in order.

    Args:
        read: the text.
        terms: of the query.
        spans: finds words.
        pieces: the tower's; a word has the same subword tokens everywhere.

    Returns:
        Positions in the field's value; punctuation and stop words are left out.
    """
    found = read.answers(terms)
    if not found:
        return []
    last = max(found.values())
    text = read.text[: TOKEN_CHARACTERS * (last + 2)]
    words = pieces.words(text)
    if len(text) < len(read.text):
        del words[-1:]  # it may be cut off
    counted = accumulate(len(pieces.pieces(word)) for word in words)
    ends = list(takewhile(last.__ge__, counted))
    numbers = {term: bisect_right(ends, token) for term, token in found.items()}
    kept = [
        (term, number)
        for term, number in numbers.items()
        if number < len(words) and is_lexical(words[number])
    ]
    placed = [(term, _word_at(words, number, text, spans)) for term, number in kept]
    return sorted(
        (Span(term, read.start + at.start, read.start + at.end) for term, at in placed if at is not None),
        key=lambda span: span.start,
    )


def _word_at(words: Sequence[str], number: int, text: str, spans: WordSpans) -> Span | None:
    """Position of one of a text's words; only equal words are searched."""
    word = words[number]
    return next(islice(spans.of_text(text, {word}), words[:number].count(word), None), None)


def from_its_sentence(text: str, window: Window, others: Sequence[Window], width: int) -> Window:
    """Moves a window to the start of its first word's sentence, if all its words still fit.

    Args:
        text: text of the window.
        window: from `best_windows`; one at the start of the text does not move.
        others: windows that it must not overlap.
        width: in characters.
    """
    least = max(window.last - width, *(other.end for other in others if other.end <= window.start), 0)
    if window.start <= 0 or least > window.first:
        return window
    sentences = sentence_spans(text[least : window.first + 1])
    if least:  # the window would begin with the rest of a sentence
        del sentences[:1]
    if not sentences:
        return window
    start = least + sentences[-1][0]
    most = min((other.start for other in others if other.start >= window.last), default=len(text))
    return replace(window, start=start, end=min(start + width, most))
