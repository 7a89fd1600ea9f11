"""Components whose rows are in collections: how each is written there, and what reads it.

A version is built with local files. Then `store_segment` imports the rows of these components, one collection for documents and one for
passages, and removes the files. What does not grow with documents stays: headers, vocabularies, document frequencies, term statistics.
Metadata columns stay as well, because filters, facets and sorting scan them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from glow.errors import MismatchError
from glow.index.columns import COLUMNS, COLUMNS_FOLDER, ORDER_FILE
from glow.index.component import Component
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.milvus.collection import Collection, FilterFields, sample_of
from glow.index.milvus.connection import (
    BY_ID_FILE,
    STORED_FOLDER,
    STORED_HEADER,
    Connection,
    StoredHeader,
    StoredRows,
    connect,
    read_stored_header,
    sampled_rows,
)
from glow.index.milvus.readers import (
    CAUSES_FIELD,
    ID_FIELD,
    STATES_FIELD,
    TEXT_FIELD,
    WORDS_FIELD,
    MilvusDocuments,
    MilvusImpacts,
    MilvusLearned,
    MilvusStates,
    Terms,
    encode,
    split,
    text_of,
    token_values,
)
from glow.index.milvus.write import (
    NOTE_FILE,
    CollectionImport,
    DocumentPostings,
    Layout,
    PostingsOfRow,
    Values,
    collection_prefix,
    filter_layout,
    insert_here,
)
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER, POSTINGS, STAYING_FILES
from glow.index.segment import Per, Segment
from glow.index.stored_fields import STORED_FIELDS, DocumentStore
from glow.index.token_embeddings import STATES_FOLDER, STATES_HEADER, TOKEN_EMBEDDINGS, StatesHeader
from glow.storage import read_header

__all__ = ["open_stored", "store_segment", "stored_header"]

FieldType = tuple[str, Mapping[str, Any]]
PIECES: FieldType = ("ARRAY", {"element_type": "VARCHAR", "max_length": 65_535, "max_capacity": 4_096})
IDS: FieldType = ("VARCHAR", {"max_length": 65_535})
SPARSE: FieldType = ("SPARSE_FLOAT_VECTOR", {})
ALWAYS = {0: 1.0}
"""A collection needs a vector of each entity; no query has this dimension, so it never adds to a score."""
_COLLECTIONS: WeakValueDictionary[tuple[str, str], Collection] = WeakValueDictionary()
"""Open collections, which the components of a version share."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """An open collection."""

    collection: Collection  # the collection
    filters: FilterFields | None  # translates filters on documents; None: the columns are not known


@dataclass(frozen=True, slots=True)
class Stored:
    """One component in a collection."""

    component: Component[Any, Any, Any, Any]  # the component
    per: Per  # unit of its rows
    # Its fields of an entity, besides the sparse vector, with Milvus' type and options
    fields: Mapping[str, FieldType]
    stays: tuple[str, ...]  # names of its files that stay in the version's directory
    # Reads the values of rows from the local files; the second argument is a directory for temporary files
    values: Callable[[Segment, Path], Values]
    open: Callable[[Segment, Opened], Any]  # what answers as the local reader does

    def files(self, folder: Path) -> Iterator[Path]:
        """The local files of a version that the collection replaces."""
        for name in self.component.paths:
            path = folder / name
            found = sorted(path.iterdir()) if path.is_dir() else [path]
            yield from (file for file in found if file.name not in self.stays)


def _document_values(made: Segment, notes: Path) -> Values:
    store = made[STORED_FIELDS]
    assert isinstance(store, DocumentStore)  # noqa: S101 - local until now

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        raw = list(store.raw(start, stop))
        texts = [split(text_of(fields, metadata)) for _, fields, metadata in raw]
        return {ID_FIELD: [each[0] for each in raw], TEXT_FIELD: texts}

    return values


def _open_documents(segment: Segment, opened: Opened) -> MilvusDocuments:
    order = segment.path(COLUMNS_FOLDER) / ORDER_FILE
    return MilvusDocuments(opened.collection, order, segment.path(STORED_FOLDER) / BY_ID_FILE)


def _posting_values(made: Segment, notes: Path) -> Values:
    postings = DocumentPostings(made[POSTINGS], notes / IMPACTS_FOLDER)
    return lambda start, stop: {WORDS_FIELD: [_vector(each, 1) for each in postings.rows(start, stop)]}


def _learned_values(made: Segment, notes: Path) -> Values:
    postings = DocumentPostings(made[LEARNED_SPARSE].learned, notes / LEARNED_FOLDER)
    first = 1 + made[POSTINGS].header.words

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = postings.rows(start, stop)
        causes = [encode(each.causes.tobytes()) for each in rows]
        return {WORDS_FIELD: [_vector(each, first) for each in rows], CAUSES_FIELD: causes}

    return values


def _open_learned(segment: Segment, opened: Opened) -> MilvusLearned:
    bm25 = _terms(segment)
    learned = Terms.open(segment.path(LEARNED_FOLDER), 1 + bm25.header.words)
    return MilvusLearned(opened.collection, opened.filters, bm25, learned)


def _states_values(made: Segment, notes: Path) -> Values:
    states = made[TOKEN_EMBEDDINGS]
    return lambda start, stop: {STATES_FIELD: token_values(*states.coded(np.arange(start, stop)))}


STORED: Mapping[str, Stored] = {
    each.component.name: each
    for each in (
        Stored(
            STORED_FIELDS,
            "document",
            {ID_FIELD: IDS, TEXT_FIELD: PIECES},
            (),
            _document_values,
            _open_documents,
        ),
        Stored(
            POSTINGS,
            "document",
            {},
            STAYING_FILES,
            _posting_values,
            lambda segment, opened: MilvusImpacts(opened.collection, opened.filters, _terms(segment)),
        ),
        Stored(
            LEARNED_SPARSE, "document", {CAUSES_FIELD: PIECES}, STAYING_FILES, _learned_values, _open_learned
        ),
        Stored(
            TOKEN_EMBEDDINGS,
            "vector",
            {STATES_FIELD: PIECES},
            (STATES_HEADER,),
            _states_values,
            lambda segment, opened: MilvusStates(
                opened.collection, read_header(segment.path(STATES_FOLDER) / STATES_HEADER, StatesHeader)
            ),
        ),
    )
}


def open_stored(component: Component[Any, Any, Any, Any], segment: Segment) -> Any:
    """What reads a component from a collection; None if the segment does not have it in one."""
    header = stored_header(segment)
    if header is not None:
        for rows in header.collections:
            if component.name in rows.components:
                return STORED[component.name].open(segment, _opened(segment, header.address, rows))
    return None


def stored_header(segment: Segment) -> StoredHeader | None:
    """The collections of a segment; None if its rows are in files, as those of a delta always are."""
    if segment.below or not segment.has(f"{STORED_FOLDER}/{STORED_HEADER}"):
        return None
    return read_stored_header(segment.path(STORED_FOLDER))


def store_segment(
    made: Segment,  # a finished segment with local files, its components open
    folder: Path,  # the version's directory; the imported files are removed from it
    address: str,
    notes: Path,  # directory that survives a killed build; created if missing
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Moves the rows of components into collections; a call after a killed one resumes the import."""
    connection = connect(address)
    held = [each for name, each in STORED.items() if name in made.readers]
    is_cut = made.rows.first is not None
    groups: dict[Per, list[Stored]] = {}
    for each in held:
        groups.setdefault(each.per if is_cut else "document", []).append(each)
    written = [
        _Import(connection, made, notes / per, per, parts).run(collection_prefix(notes), advance)
        for per, parts in groups.items()
    ]
    target = folder / STORED_FOLDER
    target.mkdir()
    np.save(target / BY_ID_FILE, np.argsort(made[COLUMNS].order).astype(np.uint32), allow_pickle=False)
    StoredHeader(address=address, collections=tuple(written)).save(target / STORED_HEADER)
    for each in held:
        for file in list(each.files(folder)):
            file.unlink()


class _Import:
    """The import of one collection."""

    def __init__(
        self, connection: Connection, made: Segment, notes: Path, per: Per, parts: Sequence[Stored]
    ) -> None:
        notes.mkdir(parents=True, exist_ok=True)
        self._connection, self._made, self._notes = connection, made, notes
        self._per, self._parts = per, parts
        self._sources = [each.values(made, notes) for each in parts]
        self._filters = FilterFields(made[COLUMNS]) if per == "document" else None

    def run(self, prefix: str, advance: Callable[[int], None]) -> StoredRows:
        """Imports all rows."""
        made: Segment = self._made
        fields: dict[str, FieldType] = {WORDS_FIELD: SPARSE}
        for each in self._parts:
            fields |= each.fields
        count = made.rows.count(self._per)
        sampled = (self._values(row, row + 1) for row in sampled_rows(count).tolist())
        entities = [{name: values[0] for name, values in each.items()} for each in sampled]
        store = made.get(STORED_FIELDS)
        rows = StoredRows(
            collection=prefix,
            per="vector" if self._per == "vector" else "document",
            components=tuple(each.component.name for each in self._parts),
            rows=count,
            text_bytes=store.longest() if isinstance(store, DocumentStore) else 0,
            sample=sample_of(entities, list(fields)),
            filters=() if self._filters is None else self._filters.names,
        )
        name = f"{prefix}_{self._per}s_{rows.bound_to(made.hashes['model'], made.hashes['terms'])}"
        layout = Layout(fields | filter_layout(rows.filters), WORDS_FIELD, "SPARSE_INVERTED_INDEX")
        insert = insert_here(self._connection, self._values)
        CollectionImport(self._connection, name, layout, self._notes / NOTE_FILE).run(count, insert, advance)
        return rows.model_copy(update={"collection": name})

    def _values(self, start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        """The values of all components; sparse vectors are joined."""
        vectors: list[dict[int, float]] = [{} for _ in range(start, stop)]
        joined: dict[str, Sequence[Any]] = {}
        for source in self._sources:
            for name, values in source(start, stop).items():
                if name != WORDS_FIELD:
                    joined[name] = values
                    continue
                for vector, own in zip(vectors, values, strict=True):
                    vector |= own
        codes = {} if self._filters is None else self._filters.codes(np.arange(start, stop))
        filters = {name: each.tolist() for name, each in codes.items()}
        return {WORDS_FIELD: [vector or ALWAYS for vector in vectors], **joined, **filters}


def _opened(segment: Segment, address: str, rows: StoredRows) -> Opened:
    """The collection; when it is opened first, its rows are checked."""
    collection = _COLLECTIONS.get((address, rows.collection))
    is_open = collection is not None
    if collection is None:
        sizes = {TEXT_FIELD: rows.text_bytes}
        collection = Collection(connect(address), rows.collection, rows.rows, sizes)
    file, hashes = f"{STORED_FOLDER}/{STORED_HEADER}", segment.hashes
    collection.require_bound(file, rows.bound_to(hashes.get("model", ""), hashes.get("terms", "")))
    if rows.per == "document" and rows.rows != segment.rows.documents:
        raise MismatchError(
            f"index {segment.name}: {rows.rows} documents in {file}, {segment.rows.documents} in the manifest; {segment.remedy}"
        )
    if not is_open:
        fields = [WORDS_FIELD, *(name for each in rows.components for name in STORED[each].fields)]
        places = sampled_rows(rows.rows).tolist()
        collection.check(lambda: sample_of(collection.read(places, fields), fields), rows.sample)
        _COLLECTIONS[address, rows.collection] = collection
    columns = segment.get(COLUMNS) if rows.filters else None
    filters = None if columns is None else FilterFields(columns, rows.filters)
    return Opened(collection, filters)


def _terms(segment: Segment) -> Terms:
    return Terms.open(segment.path(IMPACTS_FOLDER), 1)


def _vector(row: PostingsOfRow, first: int) -> dict[int, float]:
    return dict(zip((row.words + first).tolist(), row.values.tolist(), strict=True))
