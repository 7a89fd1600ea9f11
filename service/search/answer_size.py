"""Limits the size of a response: hits are measured as they are fetched, so that memory stays limited, too.

The size of a hit is that of its fields, metadata and snippets as JSON; ids, scores and the rest are not counted.
"""

from typing import Any

import orjson
from msgspec.structs import replace

from glow.contract import Hit
from glow_service.errors import AnswerTooLargeError

__all__ = ["HIGHLIGHTS", "METADATA", "AnswerSize"]

METADATA, HIGHLIGHTS = "metadata", "highlights"
"""Names in `truncated` of omitted metadata and snippets."""
_LEAST_CUT = 40
"""Fewest bytes of a cut field; below this, it is omitted."""


class AnswerSize:
    """Collects the hits of one response: whole while all fit, otherwise each cut to an equal part.

    Args:
        most: most bytes of all hits, >= 1; 0 for no limit.
        hits: number of hits.
        may_cut: whether hits may be cut.

    Attributes:
        found: the collected hits.
    """

    def __init__(self, most: int, hits: int, *, may_cut: bool) -> None:
        self._most, self._hits, self._may_cut = most, hits, may_cut
        self._used = 0
        self._is_full = False
        self.found: list[Hit] = []

    def add(self, hit: Hit) -> None:
        """Adds the next hit.

        Raises:
            AnswerTooLargeError: if it does not fit, and hits may not be cut.
        """
        if not self._most:
            self.found.append(hit)
            return
        if not self._is_full:
            self.found.append(hit)
            self._used += _size_of(hit)
            if self._used <= self._most:
                return
            if not self._may_cut:
                raise self._too_large(hit)
            whole, self.found = self.found, []
            self._used, self._is_full = 0, True
            for each in whole:
                self._add_cut(each)
            return
        self._add_cut(hit)

    def _add_cut(self, hit: Hit) -> None:
        """Adds a hit, cut to its part; bytes that a smaller hit does not need go to later ones."""
        part = (self._most - self._used) // max(self._hits - len(self.found), 1)
        shown = _cut(hit, part) if _size_of(hit) > part else hit
        self.found.append(shown)
        self._used = min(self._used + _size_of(shown), self._most)

    def _too_large(self, hit: Hit) -> AnswerTooLargeError:
        sizes = {**_sizes(hit), HIGHLIGHTS: _size(hit.highlights)}
        part = max(sizes, key=sizes.__getitem__)
        fitting = len(self.found) - 1
        fewer = f"fewer hits (top_k {fitting} fits), or " if fitting else ""
        return AnswerTooLargeError(
            f"the response exceeds {self._most} bytes (max_answer_bytes) at hit {len(self.found)} of {self._hits}; request "
            f"{fewer}fewer fields ({part} is the largest part of that hit), or remove allow_truncated"
        )


def _size_of(hit: Hit) -> int:
    return _size((hit.fields, hit.metadata, hit.highlights))


def _sizes(hit: Hit) -> dict[str, int]:
    return {**{name: _size(value) for name, value in hit.fields.items()}, METADATA: _size(hit.metadata)}


def _cut(hit: Hit, limit: int) -> Hit:
    """Cuts a hit: keeps snippets and metadata each whole or not at all, then fields in order, the last one cut."""
    truncated, highlights, metadata = [], hit.highlights, hit.metadata
    if highlights and _size(highlights) > limit:
        truncated.append(HIGHLIGHTS)
        highlights = {}
    sizes, used = _sizes(hit), _size(highlights)
    if metadata and sizes[METADATA] > limit - used:
        metadata = {}
        truncated.append(METADATA)
    else:
        used += sizes[METADATA]
    fields = {}
    for name, value in hit.fields.items():
        kept: str | tuple[str, ...] = value
        size = sizes[name]
        if used + size > limit:
            truncated.append(name)
            kept, size = _shorter(value, limit - used)
        if kept:
            fields[name] = kept
            used += size
    return replace(hit, fields=fields, metadata=metadata, highlights=highlights, truncated=tuple(truncated))


def _shorter(value: str | tuple[str, ...], limit: int) -> tuple[str | tuple[str, ...], int]:
    """A field of at most `limit` bytes: its first values, the last one cut."""
    if isinstance(value, str):
        return _shorter_text(value, limit)
    kept: list[str] = []
    used = 0
    for each in value:
        shown, size = _shorter_text(each, limit - used)
        if shown:
            kept.append(shown)
            used += size
        if shown != each:
            break
    return tuple(kept), used


def _shorter_text(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text, and its bytes; "" if too little of it fits."""
    size = _size(text)
    while size > limit >= _LEAST_CUT:
        # Bytes and characters differ because of JSON escapes and UTF-8; this text's ratio is a good estimate.
        text = text[: max(limit * len(text) // size - 1, 0)]
        size = _size(text)
    return (text, size) if size <= limit else ("", 0)


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
