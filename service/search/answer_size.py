"""How large an answer may get: hits are measured as they are fetched, so that no more than fits is ever held.

A hit's size is that of its fields, metadata and snippets as JSON; ids, scores and the rest are small and not counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from glow.records import Document
from glow_service.errors import AnswerTooLargeError

__all__ = ["METADATA", "AnswerSize"]

METADATA = "metadata"
"""Stands in `truncated` for metadata that were left out."""
_LEAST_CUT = 40
"""A field is cut to no fewer bytes than this; with less room it is left out."""


class AnswerSize:
    """The size of one answer while it grows.

    Args:
        most: bytes that its hits may have in all, >= 1; 0 for no bound.
        hits: how many will be shown.
        may_cut: whether hits may be cut to fit; each gets an equal share of what is left.
    """

    def __init__(self, most: int, hits: int, *, may_cut: bool) -> None:
        self._most, self._hits, self._may_cut = most, hits, may_cut
        self._used = self._seen = 0

    def fit(
        self, document: Document, highlights: Mapping[str, list[str]] | None
    ) -> tuple[Document, tuple[str, ...]]:
        """A document as it fits into the answer.

        Args:
            document: with the fields and metadata that are to be shown.
            highlights: its snippets.

        Returns:
            The document, and the names of the parts that were cut or left out.

        Raises:
            AnswerTooLargeError: if it does not fit, and must not be cut.
        """
        if not self._most:
            return document, ()
        truncated: tuple[str, ...] = ()
        size = _size((document.fields, document.metadata, highlights))
        if self._may_cut:
            share = (self._most - self._used) // (self._hits - self._seen)
            if size > share:
                rest = _size(highlights)
                document, truncated, size = _cut(document, share - rest)
                size += rest
        self._seen += 1
        self._used += size
        if self._used > self._most:
            raise self._too_large(document, highlights)
        return document, truncated

    def _too_large(
        self, document: Document, highlights: Mapping[str, list[str]] | None
    ) -> AnswerTooLargeError:
        sizes = {**_sizes(document), "highlights": _size(highlights)}
        part = max(sizes, key=sizes.__getitem__)
        fitting = self._seen - 1
        fewer = f"fewer hits (top_k {fitting} fits), or for " if fitting else ""
        cut = "" if self._may_cut else ", or set allow_truncated"
        return AnswerTooLargeError(
            f"the answer exceeds {self._most} bytes (max_answer_bytes) at hit {self._seen} of {self._hits}; ask for "
            f"{fewer}fewer fields ({part} holds most of that hit){cut}"
        )


def _sizes(document: Document) -> dict[str, int]:
    return {
        **{name: _size(values) for name, values in document.fields.items()},
        METADATA: _size(document.metadata),
    }


def _cut(document: Document, room: int) -> tuple[Document, tuple[str, ...], int]:
    """What of a document has room: metadata whole or not at all, then field by field, the last one cut."""
    sizes = _sizes(document)
    truncated, used = [], 0
    metadata = document.metadata
    if sizes[METADATA] > room:
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
    return Document(document.id, fields, metadata), tuple(truncated), used


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
