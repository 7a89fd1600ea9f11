"""Stored documents in a collection: the id of each, and its fields and metadata as text."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.milvus.collection import Collection
from glow.index.milvus.encoded import join
from glow.index.stored_fields import not_found, parse_document
from glow.records import Document
from glow.storage import map_array

__all__ = ["ID_FIELD", "TEXT_FIELD", "MilvusDocuments", "text_of"]

ID_FIELD, TEXT_FIELD = "id", "text"
BOTH = (ID_FIELD, TEXT_FIELD)
PROBES, FEW_PROBES = 64, 3
"""Ids that a step of a search for one id reads: four steps for ten million documents; and the least if many are searched."""


def text_of(fields: str, metadata: str) -> str:
    """Fields and metadata as one text; JSON has no line breaks."""
    return f"{fields}\n{metadata}"


class MilvusDocuments:
    """Documents by row and by id; arguments and results as for `DocumentStore`.

    Args:
        collection: of the documents.
        order: file with the rank of each row's id.
        by_id: file with the rows in the order of their ids.
    """

    def __init__(self, collection: Collection, order: Path, by_id: Path) -> None:
        self._collection, self._order = collection, order
        self._by_id = map_array(by_id, np.uint32, collection.rows)
        self.count = collection.rows

    def rows(self, rows: Sequence[int]) -> list[Document]:
        """The documents of rows, in the given order; every row must exist."""
        return [parse_document(each) for each in self._raw([int(row) for row in rows])]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The ids of rows, in the given order, without the documents."""
        return [each[ID_FIELD] for each in self._collection.read([int(row) for row in rows], (ID_FIELD,))]

    def get(self, document_id: str) -> Document:
        """The document with an id.

        Raises:
            DocumentNotFoundError: if there is none.
        """
        row = self.find(document_id)
        if row is None:
            raise not_found(document_id)
        return self.rows([row])[0]

    def find(self, document_id: str) -> int | None:
        """The row of an id; None if there is none."""
        return self.find_all([document_id])[0]

    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        """The row of each id; None if there is none."""
        if self.count == 0:
            return [None] * len(ids)
        rows = self._by_id[np.minimum(self._places(ids), self.count - 1)].tolist()
        return [
            row if held == each else None for row, held, each in zip(rows, self.ids(rows), ids, strict=True)
        ]

    def rows_before(self, ids: Sequence[str]) -> list[int | None]:
        """For each id the row of the last one before it in code point order; the ids may be absent."""
        return [None if place == 0 else int(self._by_id[place - 1]) for place in self._places(ids).tolist()]

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the documents of rows `start` to `stop` (not included; None: to the end) in order."""
        for entities in self._collection.scan(BOTH, start, stop):
            for each in entities:
                yield parse_document(_record(each))

    def by_id(self) -> Iterator[tuple[str, int, str, str]]:
        """Yields id, row, fields and metadata (as stored JSON) of every document, in code point order of ids."""
        for start in range(0, self.count, PROBES):
            rows = self._by_id[start : start + PROBES].tolist()
            for row, (identifier, fields, metadata) in zip(rows, self._raw(rows), strict=True):
                yield identifier, row, fields, metadata

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yields the metadata of every document by row."""
        return (dict(document.metadata) for document in self.scan())

    def id_ranks(self) -> NDArray[np.uint32]:
        """For each row the rank of its id in code point order, uint32 [documents]."""
        return map_array(self._order, np.uint32, self.count)

    def _raw(self, rows: Sequence[int]) -> list[tuple[str, str, str]]:
        return [_record(each) for each in self._collection.read(rows, BOTH)]

    def _places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """How many ids come before each of some, int64 [ids].

        Each step reads ids for all of them, and keeps for each the range between two of those.
        """
        wanted = [each.encode() for each in ids]
        low, high = np.zeros(len(ids), np.int64), np.full(len(ids), self.count, np.int64)
        while len(searched := np.flatnonzero(low < high)):
            most = max(PROBES // len(searched), FEW_PROBES)
            probes = {
                each: np.unique(np.linspace(low[each], high[each] - 1, most).astype(np.int64))
                for each in searched.tolist()
            }
            every = np.unique(np.concatenate(list(probes.values())))
            # The first steps of every search read the same ids.
            held = self._collection.read(
                self._by_id[every].tolist(), (ID_FIELD,), caches=len(every) <= PROBES
            )
            names = {place: each[ID_FIELD].encode() for place, each in zip(every.tolist(), held, strict=True)}
            for each, places in probes.items():
                before = sum(names[place] < wanted[each] for place in places.tolist())
                if before:
                    low[each] = places[before - 1] + 1
                if before < len(places):
                    high[each] = places[before]
        return low


def _record(entity: Any) -> tuple[str, str, str]:
    """Id, fields and metadata.

    Raises:
        FormatError: if the text is not that of a document.
    """
    fields, line, metadata = join(entity[TEXT_FIELD]).partition("\n")
    if not line:
        raise FormatError(f"the stored document {entity[ID_FIELD]!r} is damaged; rebuild the index")
    return entity[ID_FIELD], fields, metadata
