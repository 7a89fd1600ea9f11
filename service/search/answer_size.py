"""Limits the size of a response: hits are measured as they are fetched, so that memory stays limited, too.

The size of a hit is that of its fields, metadata and snippets as JSON; ids, scores and the rest are not counted.
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
        self.found: list[FoundDocument] = []

    def add(self, hit: FoundDocument) -> None:
        """Adds the next hit, whose document has only the requested fields and metadata.

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

    def _add_cut(self, hit: FoundDocument) -> None:
        """Adds a hit, cut to its part; bytes that a smaller hit does not need go to later ones."""
        part = (self._most - self._used) // max(self._hits - len(self.found), 1)
        shown = _cut(hit, part) if _size_of(hit) > part else hit
        self.found.append(shown)
        self._used = min(self._used + _size_of(shown), self._most)

    def _too_large(self, hit: FoundDocument) -> AnswerTooLargeError:
        sizes = {**_sizes(hit.document), HIGHLIGHTS: _size(hit.highlights)}
        part = max(sizes, key=sizes.__getitem__)
        fitting = len(self.found) - 1
        fewer = f"fewer hits (top_k {fitting} fits), or " if fitting else ""
        return AnswerTooLargeError(
            f"the response exceeds {self._most} bytes (max_answer_bytes) at hit {len(self.found)} of {self._hits}; request "
            f"{fewer}fewer fields ({part} is the largest part of that hit), or remove allow_truncated"
        )


def _size_of(hit: FoundDocument) -> int:
    return _size((hit.document.fields, hit.document.metadata, hit.highlights))


def _sizes(document: Document) -> dict[str, int]:
    return {
        **{name: _size(values) for name, values in document.fields.items()},
        METADATA: _size(document.metadata),
    }


def _cut(hit: FoundDocument, room: int) -> FoundDocument:
    """Cuts a hit: keeps snippets and metadata each whole or not at all, then fields in order, the last one cut."""
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
    """The first values that fit into `room` bytes, the last one cut."""
    kept: list[str] = []
    used = 0
    for value in values:
        size = _size(value)
        while size > room - used and room - used >= _LEAST_CUT:
            # Bytes and characters differ because of JSON escapes and UTF-8; this text's ratio is a good estimate.
            value = value[: max((room - used) * len(value) // size - 1, 0)]
            size = _size(value)
        if size > room - used or not value:
            break
        kept.append(value)
        used += size
    return tuple(kept), used


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
