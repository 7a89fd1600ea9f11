"""Writes a collection: created, filled in the order of the rows, indexed and loaded; a killed import can be resumed."""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import Columns
from glow.index.component import ImportRows, VectorRows
from glow.index.milvus.collection import FilterFields, sample_of
from glow.index.milvus.connection import (
    BUILD_S,
    INDEX_S,
    ROW_FIELD,
    STORE_FILE,
    VECTOR_FIELD,
    CollectionHeader,
    Connection,
    StoreHeader,
    connect,
    require_pymilvus,
    sampled_rows,
)
from glow.index.passages import PassageMap
from glow.index.postings import SegmentImpacts
from glow.index.ranking import IndexKind, list_count

RANGE = 1 << 18
"""Rows of one file: some 200 MB in memory at 60 postings a document."""
AT_ONCE = 1 << 20
RECORD = np.dtype([("row", "<u4"), ("word", "<u4"), ("value", "<f4"), ("cause", "u1")])


class DocumentPostings:
    """Reads an inverted index document by document, by way of temporary files in a folder."""

    def __init__(self, impacts: SegmentImpacts, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._part, self._records = folder, -1, np.empty(0, RECORD)
        for file in folder.glob("range-*"):
            file.unlink()  # of a killed import
        for block in impacts.blocks(AT_ONCE):
            records = np.empty(len(block.rows), RECORD)
            records["row"], records["word"], records["value"] = block.rows, block.words, block.impacts
            records["cause"] = 0 if block.causes is None else block.causes
            parts = block.rows // RANGE
            for part in np.unique(parts).tolist():
                with (folder / f"range-{part}").open("ab") as opened:
                    opened.write(records[parts == part].tobytes())

    def rows(self, start: int, stop: int) -> list[NDArray[Any]]:
        """The records of each row from `start` to `stop`, which are in one range, in the order of words."""
        part = start // RANGE
        if part != self._part:
            file = self._folder / f"range-{part}"
            records = np.fromfile(file, RECORD) if file.is_file() else np.empty(0, RECORD)
            self._records = records[np.lexsort((records["word"], records["row"]))]
            self._part = part
        places = np.searchsorted(self._records["row"], np.arange(start, stop + 1)).tolist()
        return [self._records[first:last] for first, last in pairwise(places)]


BATCH_ROWS, BATCH_BYTES = 2_048, 16 << 20
"""Most rows of an insert's message, and about its most bytes; a message may have some tens of MB."""
IMPORT_ROWS = 16 * BATCH_ROWS
"""Rows between two flushes, whose progress is noted."""
NOTE_FILE, NAME_FILE = "import.json", "collection.txt"
FieldType = tuple[str, Mapping[str, Any]]
"""Milvus' type, and its options."""
Values = Callable[[int, int], Mapping[str, Sequence[Any]]]
"""Rows `start` to `stop` -> the values of each field but the primary key."""
Header = TypeVar("Header", bound=CollectionHeader)


@dataclass(frozen=True, slots=True)
class CollectionImport:
    """Creates a collection and imports its rows; the same call after a kill resumes."""

    connection: Connection  # to the server
    fields: Mapping[str, FieldType]  # without primary key and filters; the first is searched
    index: FieldType  # of the first field
    values: Values  # of these fields and of the filters
    note: Path  # file for the progress

    def run(
        self,
        header: Header,  # its collection is the start of the name
        hashes: Mapping[str, str],  # of the version, which the collection is bound to
        advance: Callable[[int], None],
        insert: ImportRows | None = None,  # imports rows in other processes; None: this process imports
    ) -> Header:
        """Imports all rows, builds the index and loads the collection; returns the header with name and sample."""
        sampled = (self.values(row, row + 1) for row in sampled_rows(header.rows).tolist())
        entities = [{name: values[name][0] for name in self.fields} for values in sampled]
        header = header.model_copy(update={"sample": sample_of(entities, list(self.fields))})
        name = f"{header.collection}_{header.bound_to(hashes)}"
        done = self._begin(name, len(header.filters))
        advance(done)
        for reached in (insert or self._insert)(name, done, header.rows):
            self.connection.call("flush", name, within_s=BUILD_S)
            self._write_note(name, reached)
            advance(reached - done)
            done = reached
        self.connection.run(lambda client, within_s: self._index(client, name, within_s), INDEX_S)
        self.note.unlink()
        return header.model_copy(update={"collection": name})

    def _begin(self, name: str, filters: int) -> int:
        """Number of rows that a killed import has certainly stored; without any, an empty collection is created."""
        if self.note.exists() and _exists(self.connection, name):
            noted = json.loads(self.note.read_text(encoding="utf-8"))
            if noted["collection"] == name:
                return int(noted["rows"])
        drop_collection(self.connection, name)
        types = require_pymilvus().DataType
        codes: dict[str, FieldType] = {f"f{place}": ("INT64", {}) for place in range(filters)}

        def create(client: Any, within_s: float) -> None:
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(ROW_FIELD, types.INT64, is_primary=True)
            for field, (kind, options) in (*self.fields.items(), *codes.items()):
                if "element_type" in options:
                    options = {**options, "element_type": types[options["element_type"]]}
                schema.add_field(field, types[kind], **options)
            client.create_collection(name, schema=schema, timeout=within_s)

        self.connection.run(create, BUILD_S)
        self._write_note(name, 0)
        return 0

    def _insert(self, collection: str, start: int, stop: int) -> Iterator[int]:
        for first in range(start, stop, IMPORT_ROWS):
            last = min(first + IMPORT_ROWS, stop)
            insert_rows(self.connection, collection, self.values, first, last)
            yield last

    def _write_note(self, name: str, rows: int) -> None:
        new = self.note.with_suffix(".new")
        new.write_text(json.dumps({"collection": name, "rows": rows}), encoding="utf-8")
        new.replace(self.note)

    def _index(self, client: Any, name: str, within_s: float) -> None:
        parameters, (kind, options) = client.prepare_index_params(), self.index
        parameters.add_index(next(iter(self.fields)), index_type=kind, metric_type="IP", params=dict(options))
        client.create_index(name, parameters, timeout=within_s)
        client.load_collection(name, timeout=within_s)


def write_vectors(
    connection: Connection,
    prefix: str,  # start of the collection's name; a killed import may have left such a collection
    kind: IndexKind,  # of its index
    fields: FilterFields | None,  # metadata for filters; None: none
    folder: Path,  # gets `vectors.json`
    vectors: VectorRows,  # float32 [N, D], L2-normalized
    hashes: Mapping[str, str],  # `model` and `terms` bind the collection to its version
    passages: PassageMap | None = None,  # None: rows are documents
    advance: Callable[[int], None] = lambda _: None,
    insert: ImportRows | None = None,  # imports rows in other processes; None: this process imports
    notes: Path | None = None,  # directory that survives a killed build; None: `folder`
) -> StoreHeader:
    """Imports vectors into a new collection."""
    rows, dimensions = vectors.shape
    header = StoreHeader(
        address=connection.address,
        collection=prefix,
        index=kind,
        rows=rows,
        dimensions=dimensions,
        filters=() if fields is None else fields.names,
    )
    indexes: dict[IndexKind, FieldType] = {
        "flat": ("FLAT", {}),
        "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}),
        "ivf-pq": ("IVF_SQ8", {"nlist": list_count(rows)}),
    }
    schema = {VECTOR_FIELD: ("FLOAT_VECTOR", {"dim": dimensions})}
    values, note = vector_values(vectors, fields, passages), (notes or folder) / NOTE_FILE
    header = CollectionImport(connection, schema, indexes[kind], values, note).run(
        header, hashes, advance, insert
    )
    header.save(folder / STORE_FILE)
    return header


def collection_prefix(notes: Path) -> str:
    """A name prefix unique to the build of a directory, even for equal rows: each version owns its collections."""
    notes.mkdir(parents=True, exist_ok=True)
    file = notes / NAME_FILE
    if not file.exists():
        file.write_text(f"glow_{secrets.token_hex(6)}", encoding="ascii")
    return file.read_text(encoding="ascii")


def vector_values(vectors: VectorRows, fields: FilterFields | None, passages: PassageMap | None) -> Values:
    """The values of a collection of vectors; arguments as for `write_vectors`."""

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = np.arange(start, stop)
        documents = rows if passages is None else passages.documents[rows].astype(np.int64)
        blocks = list(np.ascontiguousarray(vectors[start:stop]))
        return {VECTOR_FIELD: blocks, **({} if fields is None else fields.codes(documents))}

    return values


def insert_rows(connection: Connection, collection: str, values: Values, start: int, stop: int) -> None:
    """Imports rows into a collection in batches; they are stored by key, so importing them again changes nothing."""
    for first in range(start, stop, BATCH_ROWS):
        last = min(first + BATCH_ROWS, stop)
        columns = values(first, last)
        batches: list[list[dict[str, Any]]] = [[]]
        size = 0
        for row, *row_values in zip(range(first, last), *columns.values(), strict=True):
            entity = {ROW_FIELD: row, **dict(zip(columns, row_values, strict=True))}
            own = _bytes(entity)
            if batches[-1] and size + own > BATCH_BYTES:
                batches.append([])
                size = 0
            batches[-1].append(entity)
            size += own
        for batch in batches:
            connection.call("upsert", collection, batch, within_s=BUILD_S)


def _bytes(value: Any) -> int:
    """About the bytes of a value in a message."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, int | float):
        return 8
    return sum(map(_bytes, value.values() if isinstance(value, Mapping) else value))


def release_collection(connection: Connection, name: str) -> None:
    """Unloads a collection from the server's memory, not from its disks; opening its version loads it again."""
    if _exists(connection, name):
        connection.call("release_collection", name, within_s=BUILD_S)


def drop_collection(connection: Connection, name: str) -> None:
    """Deletes a collection; a missing one is not an error."""
    if _exists(connection, name):
        connection.call("drop_collection", name, within_s=BUILD_S)


def _exists(connection: Connection, name: str) -> bool:
    return bool(connection.call("has_collection", name, within_s=BUILD_S))


@dataclass(frozen=True, slots=True)
class ImportRange:
    """Imports any range of rows into a collection; a `RangeTask`."""

    address: str  # of the server; the token is in the environment of the process that runs this
    vectors: VectorRows  # all of them, on a shared disk
    columns: Path  # directory whose `columns/` describe the documents
    documents: int  # their number
    passages: Path | None  # directory of the map of passages; None: rows are documents

    def __call__(self, collection: str, start: int, stop: int) -> None:
        """Imports rows `start` to `stop`; existing ones are overwritten."""
        passages = None if self.passages is None else PassageMap.open(self.passages)
        fields = FilterFields(Columns.open(self.columns, self.documents))
        values = vector_values(self.vectors, fields, passages)
        insert_rows(connect(self.address), collection, values, start, stop)
