"""Chooses the stretches of a text to show: those whose words have the highest total weight.

A stretch counts each distinct word once, so two rare words beat one that occurs ten times; a word that
an earlier stretch shows already counts a quarter.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from glow.text.spans import Span, WordSpans

__all__ = ["Window", "best_windows", "trim"]

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
    spans: Iterable[Span], worth: Mapping[str, float], count: int, width: int, length: int
) -> list[Window]:
    """Chooses windows that do not overlap, best first; each takes at most one pass over the words.

    Args:
        spans: words of the text in order; read once per window, and only until nothing better can follow.
        worth: word -> weight > 0; other words do not count.
        count: most windows.
        width: characters of a window; a longer word is kept whole.
        length: of the text in characters.
    """
    chosen: list[Window] = []
    shown: set[str] = set()
    while worth and len(chosen) < count:
        now = {word: value * (SEEN_SHARE if word in shown else 1.0) for word, value in worth.items()}
        free = (span for span in spans if all(_is_outside(span, window) for window in chosen))
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
    best, found, value = -1.0, list[Span](), 0.0
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
            best, found = value, list(run)
            if best >= most - _ROUNDING:  # a window with every word; none can be better
                break
    return best, found


def _is_outside(span: Span, window: Window) -> bool:
    return span.end <= window.start or span.start >= window.end


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
