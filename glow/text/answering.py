"""Snippets by meaning: where in a text the tokens stand that answer a query, and where the sentence begins that a snippet shows."""

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
"""To find a token no more of the text is split again than so many characters for each one up to it, which prose seldom needs."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text as the document tower read it.

    Attributes:
        field: whose only value the text is, or is a part of.
        start: where it begins in that value.
        text: in whole; the tower may have read its beginning alone.
        answers: terms of a query -> those that a token of the text answers, and that token, from 0 on.
    """

    field: str
    start: int
    text: str
    answers: Callable[[Set[str]], Mapping[str, int]]


def answering_words(read: ReadText, terms: Set[str], spans: WordSpans, pieces: WordPieces) -> list[Span]:
    """The words of a text that answer terms which it does not hold, each as the term, in order.

    Args:
        read: the text.
        terms: of the query.
        spans: finds words.
        pieces: as the tower's; a word has the same ones wherever it stands.

    Returns:
        Where they stand in the field's value; no punctuation and no word that only holds others together.
    """
    found = read.answers(terms)
    if not found:
        return []
    last = max(found.values())
    text = read.text[: TOKEN_CHARACTERS * (last + 2)]
    words = pieces.words(text)
    if len(text) < len(read.text):
        del words[-1:]  # it may be cut
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
    """Where one of a text's words stands: only its like are looked for."""
    word = words[number]
    return next(islice(spans.of_text(text, {word}), words[:number].count(word), None), None)


def from_its_sentence(text: str, window: Window, others: Sequence[Window], width: int) -> Window:
    """A window that begins with the sentence of its first word, if all its words still find room.

    Args:
        text: that it is cut from.
        window: as `best_windows` has it; what begins with the text stays.
        others: windows that it must not overlap.
        width: characters of a window.
    """
    least = max(window.last - width, *(other.end for other in others if other.end <= window.start), 0)
    if window.start <= 0 or least > window.first:
        return window
    sentences = sentence_spans(text[least : window.first + 1])
    if least:  # what the stretch begins with is the rest of a sentence
        del sentences[:1]
    if not sentences:
        return window
    start = least + sentences[-1][0]
    most = min((other.start for other in others if other.start >= window.last), default=len(text))
    return replace(window, start=start, end=min(start + width, most))
