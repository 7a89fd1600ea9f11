"""The document store: fields and metadata of every document, in SQLite, by row and by id.

A document's row is its position in the FAISS index, so hits need no further mapping.
"""

import heapq
import json
import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from glow.errors import DocumentNotFoundError, FormatError, MismatchError, RecordError
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Rules
from glow.index.ranking import RowMask
from glow.index.segment import MergeSource, Segment, Segments
from glow.records import Document


class DocumentsView(Protocol):
    """Stored documents for searches; `DocumentStore` describes each method."""

    @property
    def count(self) -> int: ...
    def get(self, document_id: str) -> Document: ...
    def find(self, document_id: str) -> int | None: ...
    def find_all(self, ids: Sequence[str]) -> list[int | None]: ...
    def rows(self, rows: Sequence[int]) -> list[Document]: ...
    def ids(self, rows: Sequence[int]) -> list[str]: ...
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...
    def by_id(self, after: str = "") -> Iterator[tuple[str, int, str, str]]: ...


class StoredDocuments(DocumentsView, Protocol):
    """The documents of one segment, for joining and additions; `DocumentStore` describes each method."""

    def rows_before(self, ids: Sequence[str]) -> list[int | None]: ...
    def metadata(self) -> Iterator[dict[str, Any]]: ...
    def id_ranks(self) -> NDArray[np.uint32]: ...


class DocumentFinder(ABC):
    """Finds one document as it finds several."""

    @abstractmethod
    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        """The row of each id; None if it does not exist or is deleted."""

    @abstractmethod
    def rows(self, rows: Sequence[int]) -> list[Document]:
        """The documents of rows, in the given order; every row must exist, but may be deleted."""

    def find(self, document_id: str) -> int | None:
        return self.find_all([document_id])[0]

    def get(self, document_id: str) -> Document:
        row = self.find(document_id)
        if row is None:
            raise not_found(document_id)
        return self.rows([row])[0]


_LONG_NUMBER = re.compile("[0-9]{19}")
_SCHEMA = """
CREATE TABLE documents (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    fields TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT
"""


class DocumentWriter:
    """Writes a new document store; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        # The file is part of an artifact that is complete or absent: a journal would only cost time.
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute(_SCHEMA)
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.commit()
        self._connection.close()

    def add(self, document: Document) -> int:
        """Stores a document under the next row, which it returns."""
        fields = {name: values for name, values in document.fields.items() if values}
        try:
            self._connection.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?)",
                (self.count, document.id, _dump(fields), _dump(document.metadata)),
            )
        except sqlite3.IntegrityError as error:
            raise RecordError(
                f"duplicate '_id': {document.id!r} came before, the first one is kept"
            ) from error
        self.count += 1
        return self.count - 1


class DocumentStore:
    """Reads a document store; safe to use from many threads (each has its own connection)."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._local = threading.local()
        # For a new thread after the directory was removed: an older version's files may stay in use.
        self._spare: _Reader | None = None
        with self._reading():
            # A view of that name could contain anything, even a query that never ends.
            query = "SELECT sql FROM sqlite_schema WHERE name = 'documents'"
            schema = self._connect().execute(query).fetchone()
            if schema is None or str(schema[0]).split() != _SCHEMA.split():
                raise ValueError("it lacks the table of documents that GLOW makes")
            self.count = int(self._connect().execute("SELECT count(*) FROM documents").fetchone()[0])

    def get(self, document_id: str) -> Document:
        """The document with an id."""
        query = "SELECT id, fields, metadata FROM documents WHERE id = ?"
        with self._reading():
            record = self._connect().execute(query, (document_id,)).fetchone()
            if record is None:
                raise not_found(document_id)
            return parse_document(record)

    def find(self, document_id: str) -> int | None:
        """The row of an id; None if there is none."""
        query = "SELECT row FROM documents WHERE id = ?"
        with self._reading():
            record = self._connect().execute(query, (document_id,)).fetchone()
            return None if record is None else int(record[0])

    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        """The row of each id; None if there is none."""
        return [self.find(each) for each in ids]

    def rows_before(self, ids: Sequence[str]) -> list[int | None]:
        """For each id the row of the last one before it in code point order; the ids may be absent."""
        query = "SELECT row FROM documents WHERE id < ? ORDER BY id DESC LIMIT 1"
        with self._reading():
            records = [self._connect().execute(query, (each,)).fetchone() for each in ids]
            return [None if record is None else int(record[0]) for record in records]

    def rows(self, rows: Sequence[int]) -> list[Document]:
        """The documents of rows, in the given order; every row must exist."""
        marks = ",".join("?" * len(rows))
        query = f"SELECT row, id, fields, metadata FROM documents WHERE row IN ({marks})"  # noqa: S608 - marks only
        with self._reading():
            records = {row: rest for row, *rest in self._connect().execute(query, [int(row) for row in rows])}
            return [parse_document(records[int(row)]) for row in rows]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The ids of rows, in the given order, without the documents; every row must exist."""
        marks = ",".join("?" * len(rows))
        query = f"SELECT row, id FROM documents WHERE row IN ({marks})"  # noqa: S608 - marks only
        with self._reading():
            by_row = dict(self._connect().execute(query, rows).fetchall())
            return [by_row[row] for row in rows]

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the documents of rows `start` to `stop` (not included; None: to the end) in order.

        Documents are read on demand, so memory does not grow with the store.
        """
        with self._reading():
            for record in self.raw(start, stop):
                yield parse_document(record)

    def raw(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str, str]]:
        """As `scan`: id, fields and metadata, the last two as stored JSON."""
        stop = self.count if stop is None else stop
        query = "SELECT id, fields, metadata FROM documents WHERE row >= ? AND row < ? ORDER BY row"
        with self._reading():
            yield from self._connect().execute(query, (start, stop))

    def by_id(self, after: str = "") -> Iterator[tuple[str, int, str, str]]:
        """Yields id, row, fields and metadata (as stored JSON) of the documents after an id, in code point order of ids."""
        # In pieces, because readers may stop anywhere, and a waiting statement would keep the file open.
        query = "SELECT id, row, fields, metadata FROM documents WHERE id > ? ORDER BY id LIMIT 64"
        while True:
            with self._reading():
                records = self._connect().execute(query, (after,)).fetchall()
            yield from records
            if not records:
                return
            after = records[-1][0]

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yields the metadata of every document by row, without the fields, which are slower to read."""
        with self._reading():
            for (text,) in self._connect().execute("SELECT metadata FROM documents ORDER BY row"):
                yield _metadata(text)

    def longest(self) -> int:
        """Bytes of the largest document, as stored."""
        size = "max(length(CAST(fields AS BLOB)) + length(CAST(metadata AS BLOB)))"
        with self._reading():
            return int(self._connect().execute(f"SELECT {size} FROM documents").fetchone()[0] or 0)  # noqa: S608 - fixed

    def id_ranks(self) -> NDArray[np.uint32]:
        """For each row the rank of its id in code point order, uint32 [documents]."""
        ranks = np.empty(self.count, np.uint32)
        # SQLite compares UTF-8 bytes, which sort like code points, and has an index of the ids.
        with self._reading():
            records = self._connect().execute("SELECT row FROM documents ORDER BY id")
            ranks[np.fromiter((row for (row,) in records), np.int64, self.count)] = np.arange(self.count)
        return ranks

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Reports any failure on the file's contents as damage, with the file's name."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise FormatError(
                f"the document store {self._name} is damaged: {error!r:.200}; rebuild the index"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._open()
        return reader.connection

    def _open(self) -> "_Reader":
        try:
            reader = _Reader(self._uri)
        except sqlite3.OperationalError:
            if self._spare is None:
                raise
            return self._spare  # SQLite lets threads share it; they wait for each other
        self._spare = self._spare or reader
        return reader


def not_found(document_id: str) -> DocumentNotFoundError:
    """The error for an unknown id."""
    return DocumentNotFoundError(f"no document with id {document_id!r} in this index")


class _Reader:
    """A thread's connection, closed with the store in any thread.

    Otherwise only the garbage collector would close it: Python keeps a connection in a cycle with its statements.
    """

    def __init__(self, uri: str) -> None:
        self.connection = sqlite3.connect(uri, uri=True, check_same_thread=False)

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_document(columns: Sequence[str]) -> Document:
    """The document of an id, and of its fields and metadata as stored JSON."""
    identifier, fields, metadata = columns
    values = {name: tuple(texts) for name, texts in _parsed(fields).items()}
    if not isinstance(identifier, str) or {type(text) for texts in values.values() for text in texts} - {str}:
        raise ValueError("a field has a value that is not text")
    return Document(identifier, values, _metadata(metadata))


def _parsed(text: str) -> Any:
    """JSON as `json` reads it, six times as fast: orjson refuses lone surrogates, infinities and NaN."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _metadata(text: str) -> dict[str, Any]:
    # orjson rounds integers of more than 64 bits.
    metadata = json.loads(text) if _LONG_NUMBER.search(text) else _parsed(text)
    if not isinstance(metadata, dict):
        raise TypeError("metadata is not an object")
    return metadata


class SegmentedDocuments(DocumentFinder):
    """Documents of all segments: later ones replace earlier ones with the same id."""

    def __init__(self, segments: Segments[StoredDocuments]) -> None:
        self._segments, layout = segments, segments.layout
        self.count = layout.count  # number of live documents; rows exceed it if some are deleted
        # First row of each segment, its reader, and a mask of its live rows; None: all
        self._parts = [*zip(layout.starts.tolist(), segments.readers, layout.alive, strict=False)]

    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        rows: list[int | None] = [None] * len(ids)
        for start, reader, alive in reversed(self._parts):
            missing = [place for place, row in enumerate(rows) if row is None]
            own = reader.find_all([ids[place] for place in missing])
            for place, row in zip(missing, own, strict=True):
                if row is not None and (alive is None or alive.mask[row]):
                    rows[place] = start + row
        return rows

    def rows(self, rows: Sequence[int]) -> list[Document]:
        return self._segments.collect(rows, lambda reader, here: reader.rows(here))

    def ids(self, rows: Sequence[int]) -> list[str]:
        """As `rows`, but only the ids."""
        return self._segments.collect(rows, lambda reader, here: reader.ids(here))

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the live documents of rows `start` to `stop` (not included; None: to the end)."""
        stop = len(self._segments) if stop is None else stop
        for first, reader, alive in self._parts:
            begin = max(start - first, 0)
            for row, document in enumerate(reader.scan(begin, max(stop - first, 0)), begin):
                if alive is None or alive.mask[row]:
                    yield document

    def by_id(self, after: str = "") -> Iterator[tuple[str, int, str, str]]:
        """As `DocumentStore.by_id`, without deleted documents."""
        return heapq.merge(*(_live_by_id(*part, after) for part in self._parts), key=itemgetter(0))


def _live_by_id(
    start: int, reader: StoredDocuments, alive: RowMask | None, after: str
) -> Iterator[tuple[str, int, str, str]]:
    for name, row, fields, rest in reader.by_id(after):
        if alive is None or alive.mask[row]:
            yield name, start + row, fields, rest


DOCUMENTS_FILE = "documents.sqlite"


class StoredFields(Component[StoredDocuments, DocumentsView]):
    """Fields and metadata of every document; other components are built from them, so this one comes first."""

    name = "stored_fields"
    label = "stored documents"
    stage = "documents"
    paths = (DOCUMENTS_FILE,)

    def rules(self, options: ComponentOptions, inputs: BuildInputs) -> Rules:
        """Every index has them."""
        return Rules()

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules:
        """Every index has them."""
        return Rules()

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """Does nothing: reading the input has written the file."""

    def merge(self, sources: Sequence[MergeSource], rules: Rules, target: Segment) -> None:
        """Copies the live documents, in the order of the new rows."""
        with DocumentWriter(target.folder / DOCUMENTS_FILE) as writer:
            for each in sources:
                documents = each.segment[self].scan()
                for stays, document in zip(each.live.tolist(), documents, strict=True):
                    if stays:
                        writer.add(document)

    def counts(self, reader: DocumentsView) -> dict[str, int]:
        """Number of documents."""
        return {"documents": reader.count}

    def open(self, segment: Segment) -> DocumentStore:
        """Opens the file, which every segment has."""
        segment.require(DOCUMENTS_FILE)
        documents = DocumentStore(segment.path(DOCUMENTS_FILE))
        expected = segment.rows.documents
        if documents.count != expected and segment.below:
            raise MismatchError(
                f"{segment.below} holds {documents.count} stored documents, "
                f"{segment.below}delta.json says {expected} documents; {segment.remedy}"
            )
        if documents.count != expected:
            raise MismatchError(
                f"index {segment.name}: {documents.count} stored documents, {expected} in the manifest; {segment.remedy}"
            )
        return documents

    def reader(self, segments: Segments[StoredDocuments]) -> DocumentsView:
        """Later documents replace earlier ones with the same id."""
        return SegmentedDocuments(segments) if segments.only is None else segments.only

    def info(self, reader: DocumentsView | None) -> dict[str, Any]:
        """Number of live documents."""
        return {"documents": 0 if reader is None else reader.count}


STORED_FIELDS = StoredFields()
