"""How large an answer may get: hits are measured as they are fetched, so that little more than fits is ever held.

A hit's size is that of its fields, metadata and snippets as JSON; ids, scores and the rest are small and not counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from glow.records import Document
from glow_service.errors import AnswerTooLargeError
from glow_service.search.calls import FoundDocument

__all__ = ["HIGHLIGHTS", "METADATA", "AnswerSize"]

METADATA, HIGHLIGHTS = "metadata", "highlights"
"""Stand in `truncated` for metadata and snippets that were left out."""
_LEAST_CUT = 40
"""A field is cut to no fewer bytes than this; with less room it is left out."""


class AnswerSize:
    """The hits of one answer while they come: whole as long as all fit, then each cut to an equal part of the room.

    Args:
        most: bytes that the hits may have in all, >= 1; 0 for no bound.
        hits: how many will be shown.
        may_cut: whether hits may be cut to fit.

    Attributes:
        found: the hits so far, as they are shown.
    """

    def __init__(self, most: int, hits: int, *, may_cut: bool) -> None:
        self._most, self._hits, self._may_cut = most, hits, may_cut
        self._used = 0
        self._is_full = False
        self.found: list[FoundDocument] = []

    def add(self, hit: FoundDocument) -> None:
        """Takes the next hit, whose document has the fields and metadata that are to be shown.

        Raises:
            AnswerTooLargeError: if it does not fit, and must not be cut.
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

    def _add_cut(self, hit: FoundDocument) -> None:
        """What smaller hits leave of their part goes to those that follow."""
        part = (self._most - self._used) // max(self._hits - len(self.found), 1)
        shown = _cut(hit, part) if _size_of(hit) > part else hit
        self.found.append(shown)
        self._used = min(self._used + _size_of(shown), self._most)

    def _too_large(self, hit: FoundDocument) -> AnswerTooLargeError:
        sizes = {**_sizes(hit.document), HIGHLIGHTS: _size(hit.highlights)}
        part = max(sizes, key=sizes.__getitem__)
        fitting = len(self.found) - 1
        fewer = f"fewer hits (top_k {fitting} fits), or for " if fitting else ""
        return AnswerTooLargeError(
            f"the answer exceeds {self._most} bytes (max_answer_bytes) at hit {len(self.found)} of {self._hits}; ask for "
            f"{fewer}fewer fields ({part} holds most of that hit), or leave out allow_truncated"
        )


def _size_of(hit: FoundDocument) -> int:
    return _size((hit.document.fields, hit.document.metadata, hit.highlights))


def _sizes(document: Document) -> dict[str, int]:
    return {
        **{name: _size(values) for name, values in document.fields.items()},
        METADATA: _size(document.metadata),
    }


def _cut(hit: FoundDocument, room: int) -> FoundDocument:
    """What of a hit has room: its snippets and metadata, each whole or not at all, then field by field, the last one cut."""
    truncated, highlights = [], hit.highlights
    if highlights and _size(highlights) > room:
        truncated.append(HIGHLIGHTS)
        highlights = {}
    document, cut = _cut_document(hit.document, room - _size(highlights))
    return replace(hit, document=document, highlights=highlights, truncated=(*truncated, *cut))


def _cut_document(document: Document, room: int) -> tuple[Document, tuple[str, ...]]:
    sizes = _sizes(document)
    truncated, used = [], 0
    metadata = document.metadata
    if metadata and sizes[METADATA] > room:
        metadata = {}
        truncated.append(METADATA)
    else:
        used = sizes[METADATA]
    fields = {}
    for name, values in document.fields.items():
        if used + sizes[name] <= room:
            fields[name] = values
            used += sizes[name]
            continue
        truncated.append(name)
        kept, size = _shorter(values, room - used)
        if kept:
            fields[name] = kept
            used += size
    return Document(document.id, fields, metadata), tuple(truncated)


def _shorter(values: Sequence[str], room: int) -> tuple[tuple[str, ...], int]:
    """The first values, the last of them cut, in at most `room` bytes."""
    kept: list[str] = []
    used = 0
    for value in values:
        size = _size(value)
        while size > room - used and room - used >= _LEAST_CUT:
            # Bytes and characters differ by what JSON escapes and UTF-8 spreads; the ratio of this text is near enough.
            value = value[: max((room - used) * len(value) // size - 1, 0)]
            size = _size(value)
        if size > room - used or not value:
            break
        kept.append(value)
        used += size
    return tuple(kept), used


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
