"""Writes a collection: created, filled in the order of the rows, indexed and loaded; a killed import can be resumed.

N   vectors     D   dimensions
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import Columns
from glow.index.component import VectorRows
from glow.index.milvus.collection import FilterFields
from glow.index.milvus.connection import (
    BUILD_S,
    INDEX_S,
    ROW_FIELD,
    STORE_FILE,
    STORE_INDEXES,
    VECTOR_FIELD,
    Connection,
    StoreHeader,
    connect,
    require_pymilvus,
    sample_hash,
    sampled_rows,
)
from glow.index.passages import PassageMap
from glow.index.postings import SegmentImpacts
from glow.index.ranking import IndexKind, list_count

RANGE = 1 << 18
"""Rows of one file: some 200 MB in memory at 60 postings a document."""
AT_ONCE = 1 << 20
RECORD = np.dtype([("row", "<u4"), ("word", "<u4"), ("value", "<f4"), ("cause", "u1")])


class PostingsOfRow(NamedTuple):
    """The postings of one document."""

    words: NDArray[np.int64]  # int64 [p], ascending rows of the vocabulary
    values: NDArray[np.float32]  # float32 [p], impacts or codes
    causes: NDArray[np.uint8]  # uint8 [p], of learned impacts


class DocumentPostings:
    """Reads an inverted index document by document."""

    def __init__(
        self,
        impacts: SegmentImpacts,  # the index
        folder: Path,  # for temporary files; created, and removed by `close`
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._open, self._sorted = folder, -1, np.empty(0, RECORD)
        self.close()
        for block in impacts.blocks(AT_ONCE):
            records = np.empty(len(block.rows), RECORD)
            records["row"], records["word"], records["value"] = block.rows, block.words, block.impacts
            records["cause"] = 0 if block.causes is None else block.causes
            parts = block.rows // RANGE
            for part in np.unique(parts).tolist():
                with self._file(part).open("ab") as file:
                    file.write(records[parts == part].tobytes())

    def rows(self, start: int, stop: int) -> list[PostingsOfRow]:
        """The postings of rows `start` to `stop`, which are in one range."""
        self._read(start // RANGE)
        records = self._sorted
        places = np.searchsorted(records["row"], np.arange(start, stop + 1)).tolist()
        parts = (records[first:last] for first, last in pairwise(places))
        return [PostingsOfRow(each["word"].astype(np.int64), each["value"], each["cause"]) for each in parts]

    def close(self) -> None:
        """Removes the files."""
        for file in self._folder.glob("range-*"):
            file.unlink()

    def _file(self, part: int) -> Path:
        return self._folder / f"range-{part}"

    def _read(self, part: int) -> None:
        if part != self._open:
            file = self._file(part)
            records = np.fromfile(file, RECORD) if file.is_file() else np.empty(0, RECORD)
            self._sorted = records[np.lexsort((records["word"], records["row"]))]
            self._open = part


BATCH_ROWS, BATCH_BYTES = 2_048, 16 << 20
"""Most rows of an insert's message, and about its most bytes; a message may have some tens of MB."""
IMPORT_ROWS = 16 * BATCH_ROWS
"""Rows between two flushes, whose progress is noted; also the unit of work of an import in several processes."""
NOTE_FILE, NAME_FILE = "import.json", "collection.txt"
Advance = Callable[[int], None]
Documents = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Rows int64 [m] -> the document of each, if rows are passages."""
Insert = Callable[[str, int, int], Iterator[int]]
"""Imports rows `start` to `stop` into a collection; yields up to which row all are imported, ascending, finally `stop`."""
Values = Callable[[int, int], Mapping[str, Sequence[Any]]]
"""Rows `start` to `stop` -> the values of each field but the primary key."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Fields of a collection, and the index of one of them."""

    # Name -> Milvus' type and its options; the primary key is added
    fields: Mapping[str, tuple[str, Mapping[str, Any]]]
    indexed: str  # field that is searched
    index: str  # Milvus' kind of index
    options: Mapping[str, Any] = field(default_factory=dict)  # of the index


class CollectionImport:
    """Creates a collection and imports its rows; the same call after a kill resumes."""

    def __init__(
        self,
        connection: Connection,  # to the server
        name: str,  # of the collection
        layout: Layout,  # its fields
        note: Path,  # file for the progress
    ) -> None:
        self._connection, self._name, self._layout, self._note = connection, name, layout, note

    def run(self, count: int, insert: Insert, advance: Advance) -> None:
        """Imports `count` rows, builds the index, and loads the collection."""
        done = self._begin()
        advance(done)
        for reached in insert(self._name, done, count):
            self._connection.run(lambda client, within_s: client.flush(self._name, timeout=within_s), BUILD_S)
            self._write_note(reached)
            advance(reached - done)
            done = reached
        self._connection.run(self._index, INDEX_S)
        self._note.unlink()

    def _begin(self) -> int:
        """Number of rows that a killed import has certainly stored; without any, an empty collection is created."""
        name, run = self._name, self._connection.run
        if self._note.exists() and run(
            lambda client, within_s: client.has_collection(name, timeout=within_s), BUILD_S
        ):
            noted = json.loads(self._note.read_text(encoding="utf-8"))
            if noted["collection"] == name:
                return int(noted["rows"])
        run(partial(_drop, name), BUILD_S)
        run(self._create, BUILD_S)
        self._write_note(0)
        return 0

    def _create(self, client: Any, within_s: float) -> None:
        types = require_pymilvus().DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(ROW_FIELD, types.INT64, is_primary=True)
        for name, (kind, options) in self._layout.fields.items():
            if "element_type" in options:
                options = {**options, "element_type": types[options["element_type"]]}
            schema.add_field(name, types[kind], **options)
        client.create_collection(self._name, schema=schema, timeout=within_s)

    def _write_note(self, rows: int) -> None:
        new = self._note.with_suffix(".new")
        new.write_text(json.dumps({"collection": self._name, "rows": rows}), encoding="utf-8")
        new.replace(self._note)

    def _index(self, client: Any, within_s: float) -> None:
        layout, wanted = self._layout, client.prepare_index_params()
        wanted.add_index(
            layout.indexed, index_type=layout.index, metric_type="IP", params=dict(layout.options)
        )
        client.create_index(self._name, wanted, timeout=within_s)
        client.load_collection(self._name, timeout=within_s)


class CollectionWriter:
    """Imports vectors into a new collection."""

    def __init__(
        self,
        connection: Connection,  # to the server
        prefix: str,  # start of its name; a killed import may have left such a collection
        kind: IndexKind,  # of its index
        fields: FilterFields | None,  # metadata for filters; None: none
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._kind: IndexKind = kind
        self._fields = fields

    def write(
        self,
        folder: Path,
        vectors: VectorRows,  # float32 [N, D], L2-normalized
        model: str,  # model, terms: hashes that bind the collection to its version
        terms: str,
        # Rows int64 [m] -> the document of each, if rows are passages; None: the row itself
        documents: Documents | None = None,
        advance: Advance = lambda _: None,
        insert: Insert | None = None,  # imports rows in other processes; None: this process imports
        # Directory for notes on progress, which survives a killed build; None: `folder`
        notes: Path | None = None,
    ) -> StoreHeader:
        """Fills the collection, builds its index, loads it and writes `vectors.json`."""
        count, dimensions = vectors.shape
        header = StoreHeader(
            address=self._connection.address,
            collection=self._prefix,
            index=self._kind,
            vectors=count,
            dimensions=dimensions,
            sample=sample_hash(vectors[sampled_rows(count)]),
            fields=() if self._fields is None else self._fields.names,
        )
        name = f"{self._prefix}_{header.bound_to(model, terms)}"
        header = header.model_copy(update={"collection": name})
        index, options = STORE_INDEXES[self._kind]
        if index.startswith("IVF"):
            options = {**options, "nlist": list_count(count)}
        fields = {VECTOR_FIELD: ("FLOAT_VECTOR", {"dim": dimensions})} | filter_layout(header.fields)
        layout = Layout(fields, VECTOR_FIELD, index, options)
        here = insert or insert_here(self._connection, vector_values(vectors, self._fields, documents))
        note = (notes or folder) / NOTE_FILE
        CollectionImport(self._connection, name, layout, note).run(count, here, advance)
        header.save(folder / STORE_FILE)
        return header


def collection_prefix(notes: Path) -> str:
    """A name prefix unique to the build of a directory, even for equal rows: each version owns its collections."""
    notes.mkdir(parents=True, exist_ok=True)
    file = notes / NAME_FILE
    if not file.exists():
        file.write_text(f"glow_{secrets.token_hex(6)}", encoding="ascii")
    return file.read_text(encoding="ascii")


def filter_layout(names: Sequence[str]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The fields of `FilterFields`, for `Layout.fields`."""
    return {f"f{place}": ("INT64", {}) for place in range(len(names))}


def vector_values(
    vectors: VectorRows, fields: FilterFields | None = None, documents: Documents | None = None
) -> Values:
    """The values of a collection of vectors; arguments as for `CollectionWriter`."""

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = np.arange(start, stop)
        codes = {} if fields is None else fields.codes(rows if documents is None else documents(rows))
        found = list(np.ascontiguousarray(vectors[start:stop]))
        return {VECTOR_FIELD: found, **{name: each.tolist() for name, each in codes.items()}}

    return values


def insert_here(connection: Connection, values: Values) -> Insert:
    """Imports rows in this process."""

    def insert(collection: str, start: int, stop: int) -> Iterator[int]:
        for first in range(start, stop, IMPORT_ROWS):
            last = min(first + IMPORT_ROWS, stop)
            insert_rows(connection, collection, values, first, last)
            yield last

    return insert


def insert_rows(connection: Connection, collection: str, values: Values, start: int, stop: int) -> None:
    """Imports rows into a collection in batches.

    Rows are stored by key, so that importing them again changes nothing.
    """
    for first in range(start, stop, BATCH_ROWS):
        last = min(first + BATCH_ROWS, stop)
        columns = values(first, last)
        batch: list[dict[str, Any]] = []
        size = 0
        for row, *held in zip(range(first, last), *columns.values(), strict=True):
            entity = {ROW_FIELD: row, **dict(zip(columns, held, strict=True))}
            own = entity_bytes(entity)
            if batch and size + own > BATCH_BYTES:
                connection.run(partial(_upsert, collection, batch), BUILD_S)
                batch, size = [], 0
            batch.append(entity)
            size += own
        connection.run(partial(_upsert, collection, batch), BUILD_S)


def entity_bytes(entity: Mapping[str, Any]) -> int:
    """About the bytes of an entity in a message."""
    return sum(map(_bytes, entity.values()))


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return 8 * len(value)
    return 8 if isinstance(value, int) else sum(map(_bytes, value))


def release_collection(connection: Connection, name: str) -> None:
    """Unloads a collection from the server's memory, not from its disks; opening its version loads it again."""
    connection.run(partial(_release, name), BUILD_S)


def drop_collection(connection: Connection, name: str) -> None:
    """Deletes a collection; a missing one is not an error."""
    connection.run(partial(_drop, name), BUILD_S)


def _upsert(collection: str, batch: list[dict[str, Any]], client: Any, within_s: float) -> None:
    client.upsert(collection, batch, timeout=within_s)


def _release(name: str, client: Any, within_s: float) -> None:
    if client.has_collection(name, timeout=within_s):
        client.release_collection(name, timeout=within_s)


def _drop(name: str, client: Any, within_s: float) -> None:
    if client.has_collection(name, timeout=within_s):
        client.drop_collection(name, timeout=within_s)


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
        server = connect(self.address)
        values = vector_values(self.vectors, fields, documents_of(passages))
        insert_rows(server, collection, values, start, stop)


def documents_of(passages: PassageMap | None) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Rows int64 [m] -> the document of each; without passages the rows themselves."""
    return lambda rows: rows if passages is None else passages.documents[rows].astype(np.int64)
