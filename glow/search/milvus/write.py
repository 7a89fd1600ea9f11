"""Making a collection: created, filled in the order of the rows, indexed and loaded; an import that was killed goes on.

N   vectors     D   dimensions
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glow.search.dense import IndexKind, VectorRows, list_count
from glow.search.milvus.connection import Connection, require_pymilvus
from glow.search.milvus.expressions import FilterFields
from glow.search.milvus.format import (
    ROW_FIELD,
    STORE_FILE,
    STORE_INDEXES,
    VECTOR_FIELD,
    StoreHeader,
    sample_hash,
    sampled_rows,
)

__all__ = ["CollectionWriter", "drop_collection"]

BATCH_ROWS = 2_048
"""3 MB of 384 dimensions: an insert's message may be some tens of MB."""
NOTED_BATCHES = 16
"""How far an import is, is noted when so many batches were flushed."""
NOTE_FILE = "import.json"
Advance = Callable[[int], None]


class CollectionWriter:
    """Imports vectors into a new collection.

    Args:
        connection: to the server.
        prefix: how its name begins; there may be one of an import that was killed.
        kind: of its index.
        fields: what can be filtered by; None: nothing.
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
        documents: Callable[[np.ndarray], np.ndarray] | None = None,
        advance: Advance = lambda _: None,
    ) -> StoreHeader:
        """Fills the collection, builds its index, loads it and writes `vectors.json`.

        Args:
            folder: gets `vectors.json`, and notes how far the import is.
            vectors: float32 [N, D], L2-normalised.
            model, terms: hashes that bind the collection to its version.
            documents: rows int64 [m] -> the document of each, where rows are passages; None: the row itself.
            advance: told how many rows are imported.

        Raises:
            StoreError: if the server does not answer; the same call goes on.
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
        for number, start in enumerate(range(done, count, BATCH_ROWS), 1):
            rows = np.arange(start, min(start + BATCH_ROWS, count))
            self._insert(rows, vectors[start : int(rows[-1]) + 1], documents)
            advance(len(rows))
            if number % NOTED_BATCHES == 0:
                self._flush(note, int(rows[-1]) + 1)
        self._flush(note, count)
        self._index(count)
        note.unlink()
        header.save(folder / STORE_FILE)
        return header

    def _begin(self, header: StoreHeader, note: Path) -> int:
        """Rows that an import which was killed has put there for certain; else an empty collection is made."""
        name, run = self._name, self._connection.run
        if note.exists() and run(lambda client: client.has_collection(name)):
            noted = json.loads(note.read_text(encoding="utf-8"))
            if noted["collection"] == name:
                return int(noted["rows"])
        run(lambda client: client.drop_collection(name) if client.has_collection(name) else None)
        pymilvus = require_pymilvus()

        def create(client: Any) -> None:
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(ROW_FIELD, pymilvus.DataType.INT64, is_primary=True)
            schema.add_field(VECTOR_FIELD, pymilvus.DataType.FLOAT_VECTOR, dim=header.dimensions)
            for place in range(len(header.fields)):
                schema.add_field(f"f{place}", pymilvus.DataType.INT64)
            client.create_collection(name, schema=schema)

        run(create)
        self._note(note, 0)
        return 0

    def _insert(self, rows: Any, vectors: Any, documents: Any) -> None:
        codes = (
            {} if self._fields is None else self._fields.codes(rows if documents is None else documents(rows))
        )
        batch = [
            {ROW_FIELD: row, VECTOR_FIELD: vector, **{name: int(each[place]) for name, each in codes.items()}}
            for place, (row, vector) in enumerate(
                zip(rows.tolist(), np.ascontiguousarray(vectors), strict=True)
            )
        ]
        # What an import that was killed has put there beyond its note is written again: by its key, so once.
        self._connection.run(lambda client: client.upsert(self._name, batch))

    def _flush(self, note: Path, rows: int) -> None:
        self._connection.run(lambda client: client.flush(self._name))
        self._note(note, rows)

    def _note(self, note: Path, rows: int) -> None:
        partial = note.with_suffix(".new")
        partial.write_text(json.dumps({"collection": self._name, "rows": rows}), encoding="utf-8")
        partial.replace(note)

    def _index(self, count: int) -> None:
        kind, options = STORE_INDEXES[self._kind]
        if kind.startswith("IVF"):
            options = {**options, "nlist": list_count(count)}

        def build(client: Any) -> None:
            wanted = client.prepare_index_params()
            wanted.add_index(VECTOR_FIELD, index_type=kind, metric_type="IP", params=options)
            client.create_index(self._name, wanted)
            client.load_collection(self._name)

        self._connection.run(build)


def drop_collection(connection: Connection, header: StoreHeader) -> None:
    """Removes a collection; one that is gone already is no error.

    Raises:
        StoreError: if the server does not answer.
    """
    name = header.collection
    connection.run(lambda client: client.drop_collection(name) if client.has_collection(name) else None)
