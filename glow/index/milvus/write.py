"""Writes a collection: created, filled in the order of the rows, indexed and loaded; a killed import can be resumed.

N   vectors     D   dimensions
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.index.encoding import VectorRows
from glow.index.milvus.connection import BUILD_S, INDEX_S, Connection, require_pymilvus
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import (
    ROW_FIELD,
    STORE_FILE,
    STORE_INDEXES,
    VECTOR_FIELD,
    StoreHeader,
    sample_hash,
    sampled_rows,
)
from glow.index.vector_search import IndexKind, list_count

__all__ = [
    "IMPORT_ROWS",
    "CollectionWriter",
    "Insert",
    "drop_collection",
    "insert_rows",
    "release_collection",
]

BATCH_ROWS = 2_048
"""3 MB at 384 dimensions; an insert's message may have some tens of MB."""
IMPORT_ROWS = 16 * BATCH_ROWS
"""Rows between two flushes, whose progress is noted; also the unit of work of an import in several processes."""
NOTE_FILE = "import.json"
Advance = Callable[[int], None]
Documents = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Rows int64 [m] -> the document of each, if rows are passages."""
Insert = Callable[[str, int, int], Iterator[int]]
"""Imports rows `start` to `stop` into a collection; yields up to which row all are imported, ascending, finally `stop`."""


class CollectionWriter:
    """Imports vectors into a new collection.

    Args:
        connection: to the server.
        prefix: start of its name; a killed import may have left such a collection.
        kind: of its index.
        fields: metadata for filters; None: none.
    """

    def __init__(
        self, connection: Connection, prefix: str, kind: IndexKind, fields: FilterFields | None
    ) -> None:
        self._connection = connection
        self._name = prefix
        self._kind: IndexKind = kind
        self._fields = fields

    def write(
        self,
        folder: Path,
        vectors: VectorRows,
        model: str,
        terms: str,
        documents: Documents | None = None,
        advance: Advance = lambda _: None,
        insert: Insert | None = None,
    ) -> StoreHeader:
        """Fills the collection, builds its index, loads it and writes `vectors.json`.

        Args:
            folder: directory for `vectors.json`, and for notes on progress.
            vectors: float32 [N, D], L2-normalized.
            model, terms: hashes that bind the collection to its version.
            documents: rows int64 [m] -> the document of each, if rows are passages; None: the row itself.
            advance: called with the number of imported rows.
            insert: imports rows in other processes; None: this process imports.

        Raises:
            StoreError: if the server does not respond; the same call resumes the import.
        """
        count, dimensions = vectors.shape
        header = StoreHeader(
            address=self._connection.address,
            collection=self._name,
            index=self._kind,
            vectors=count,
            dimensions=dimensions,
            sample=sample_hash(vectors[sampled_rows(count)]),
            fields=() if self._fields is None else self._fields.names,
        )
        self._name = f"{self._name}_{header.bound_to(model, terms)}"
        header = header.model_copy(update={"collection": self._name})
        note = folder / NOTE_FILE
        done = self._begin(header, note)
        advance(done)
        for reached in (insert or self._insert_here(vectors, documents))(self._name, done, count):
            self._flush(note, reached)
            advance(reached - done)
            done = reached
        self._index(count)
        note.unlink()
        header.save(folder / STORE_FILE)
        return header

    def _begin(self, header: StoreHeader, note: Path) -> int:
        """Number of rows that a killed import has certainly stored; without any, an empty collection is created."""
        name, run = self._name, self._connection.run
        if note.exists() and run(
            lambda client, within_s: client.has_collection(name, timeout=within_s), BUILD_S
        ):
            noted = json.loads(note.read_text(encoding="utf-8"))
            if noted["collection"] == name:
                return int(noted["rows"])
        run(partial(_drop, name), BUILD_S)
        pymilvus = require_pymilvus()

        def create(client: Any, within_s: float) -> None:
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(ROW_FIELD, pymilvus.DataType.INT64, is_primary=True)
            schema.add_field(VECTOR_FIELD, pymilvus.DataType.FLOAT_VECTOR, dim=header.dimensions)
            for place in range(len(header.fields)):
                schema.add_field(f"f{place}", pymilvus.DataType.INT64)
            client.create_collection(name, schema=schema, timeout=within_s)

        run(create, BUILD_S)
        self._note(note, 0)
        return 0

    def _insert_here(self, vectors: VectorRows, documents: Documents | None) -> Insert:
        def insert(collection: str, start: int, stop: int) -> Iterator[int]:
            for first in range(start, stop, IMPORT_ROWS):
                last = min(first + IMPORT_ROWS, stop)
                insert_rows(self._connection, collection, vectors, first, last, self._fields, documents)
                yield last

        return insert

    def _flush(self, note: Path, rows: int) -> None:
        self._connection.run(lambda client, within_s: client.flush(self._name, timeout=within_s), BUILD_S)
        self._note(note, rows)

    def _note(self, note: Path, rows: int) -> None:
        partial = note.with_suffix(".new")
        partial.write_text(json.dumps({"collection": self._name, "rows": rows}), encoding="utf-8")
        partial.replace(note)

    def _index(self, count: int) -> None:
        kind, options = STORE_INDEXES[self._kind]
        if kind.startswith("IVF"):
            options = {**options, "nlist": list_count(count)}

        def build(client: Any, within_s: float) -> None:
            wanted = client.prepare_index_params()
            wanted.add_index(VECTOR_FIELD, index_type=kind, metric_type="IP", params=options)
            client.create_index(self._name, wanted, timeout=within_s)
            client.load_collection(self._name, timeout=within_s)

        self._connection.run(build, INDEX_S)


def insert_rows(
    connection: Connection,
    collection: str,
    vectors: VectorRows,
    start: int,
    stop: int,
    fields: FilterFields | None = None,
    documents: Documents | None = None,
) -> None:
    """Imports rows into a collection in batches.

    Rows are stored by key, so that importing them again changes nothing.

    Args:
        connection: to the server.
        collection: its name.
        vectors: all of them.
        start, stop: range of rows to import.
        fields, documents: as for `CollectionWriter`.

    Raises:
        StoreError: if the server does not respond.
    """
    for first in range(start, stop, BATCH_ROWS):
        rows = np.arange(first, min(first + BATCH_ROWS, stop))
        codes = {} if fields is None else fields.codes(rows if documents is None else documents(rows))
        found = np.ascontiguousarray(vectors[first : int(rows[-1]) + 1])
        batch = [
            {ROW_FIELD: row, VECTOR_FIELD: vector, **{name: int(each[place]) for name, each in codes.items()}}
            for place, (row, vector) in enumerate(zip(rows.tolist(), found, strict=True))
        ]
        connection.run(partial(_upsert, collection, batch), BUILD_S)


def release_collection(connection: Connection, header: StoreHeader) -> None:
    """Unloads a collection from the server's memory, not from its disks; opening its version loads it again.

    Raises:
        StoreError: if the server does not respond.
    """
    connection.run(partial(_release, header.collection), BUILD_S)


def drop_collection(connection: Connection, header: StoreHeader) -> None:
    """Deletes a collection; a missing one is not an error.

    Raises:
        StoreError: if the server does not respond.
    """
    connection.run(partial(_drop, header.collection), BUILD_S)


def _upsert(collection: str, batch: list[dict[str, Any]], client: Any, within_s: float) -> None:
    client.upsert(collection, batch, timeout=within_s)


def _release(name: str, client: Any, within_s: float) -> None:
    if client.has_collection(name, timeout=within_s):
        client.release_collection(name, timeout=within_s)


def _drop(name: str, client: Any, within_s: float) -> None:
    if client.has_collection(name, timeout=within_s):
        client.drop_collection(name, timeout=within_s)
