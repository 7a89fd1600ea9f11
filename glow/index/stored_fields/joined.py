"""The documents of a base and a delta as one store."""

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter

from glow.index.segments import BaseAndDelta
from glow.index.stored_fields.store import not_found
from glow.index.stored_fields.view import StoredDocuments
from glow.records import Document

__all__ = ["SegmentedDocuments"]


class SegmentedDocuments:
    """Documents of both: those of the delta replace those of the base with the same id.

    Args:
        both: the stores.

    Attributes:
        count: number of live documents; rows exceed it if some are deleted.
    """

    def __init__(self, both: BaseAndDelta[StoredDocuments]) -> None:
        self._both = both
        self._segments = both.segments
        self.count = both.segments.count

    def find(self, document_id: str) -> int | None:
        """The row of an id; None if it does not exist or is deleted."""
        return self.find_all([document_id])[0]

    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        """The row of each id; None if it does not exist or is deleted."""
        found = [None if row is None else row + self._segments.base for row in self._both.delta.find_all(ids)]
        missing = [place for place, row in enumerate(found) if row is None]
        rows = self._both.base.find_all([ids[place] for place in missing])
        for place, row in zip(missing, rows, strict=True):
            found[place] = None if row is None or self._segments.is_gone(row) else row
        return found

    def get(self, document_id: str) -> Document:
        """The document with an id.

        Raises:
            DocumentNotFoundError: if it does not exist or is deleted.
        """
        row = self.find(document_id)
        if row is None:
            raise not_found(document_id)
        return self.rows([row])[0]

    def rows(self, rows: Sequence[int]) -> list[Document]:
        """The documents of rows, in the given order; every row must exist, but may be deleted."""
        return self._both.collect(rows, lambda reader, here: reader.rows(here))

    def ids(self, rows: Sequence[int]) -> list[str]:
        """As `rows`, but only the ids."""
        return self._both.collect(rows, lambda reader, here: reader.ids(here))

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the live documents of rows `start` to `stop` (not included; None: to the end)."""
        first = self._segments.base
        stop = len(self._segments) if stop is None else stop
        for row, document in enumerate(self._both.base.scan(start, min(stop, first)), start):
            if not self._segments.is_gone(row):
                yield document
        yield from self._both.delta.scan(max(start - first, 0), stop - first)

    def by_id(self) -> Iterator[tuple[str, int, str, str]]:
        """As `DocumentStore.by_id`, without deleted documents."""
        first = self._segments.base
        old = (entry for entry in self._both.base.by_id() if not self._segments.is_gone(entry[1]))
        new = ((name, row + first, fields, rest) for name, row, fields, rest in self._both.delta.by_id())
        return heapq.merge(old, new, key=itemgetter(0))
