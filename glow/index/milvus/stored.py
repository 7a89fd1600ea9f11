"""Components whose rows are in collections: how each is written there, and what reads it.

A version is built with local files. Then `store_segment` imports the rows of these components, one collection for documents and one for
passages, and removes the files. What does not grow with documents stays: headers, vocabularies, document frequencies, term statistics.
Metadata columns stay as well, because filters, facets and sorting scan them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.columns import COLUMNS, COLUMNS_FOLDER, ORDER_FILE
from glow.index.component import Component
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.milvus.collection import Collection, FilterFields
from glow.index.milvus.connection import (
    BY_ID_FILE,
    STORED_FOLDER,
    STORED_HEADER,
    RowUnit,
    StoredHeader,
    StoredRows,
    connect,
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
)
from glow.index.milvus.write import (
    NOTE_FILE,
    CollectionImport,
    DocumentPostings,
    FieldType,
    Values,
    collection_prefix,
)
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER, POSTINGS, STAYING_FILES
from glow.index.segment import Segment
from glow.index.stored_fields import STORED_FIELDS, DocumentStore
from glow.index.token_embeddings import STATES_FOLDER, STATES_HEADER, TOKEN_EMBEDDINGS, StatesHeader
from glow.storage import read_header

PIECES: FieldType = ("ARRAY", {"element_type": "VARCHAR", "max_length": 65_535, "max_capacity": 4_096})
IDS: FieldType = ("VARCHAR", {"max_length": 65_535})
SPARSE: FieldType = ("SPARSE_FLOAT_VECTOR", {})
ALWAYS = {0: 1.0}
"""A collection needs a vector of each entity; no query has this dimension, so it never adds to a score."""
_COLLECTIONS: WeakValueDictionary[tuple[str, str], Collection] = WeakValueDictionary()
"""Open collections, which the components of a version share."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One component in a collection."""

    component: Component[Any, Any, Any, Any]
    per: RowUnit  # unit of its rows
    fields: Mapping[str, FieldType]  # of an entity, besides the sparse vector
    stays: tuple[str, ...]  # names of its files that stay in the version's directory
    # Reads the values of rows from the local files; the second argument is a directory for temporary files
    values: Callable[[Segment, Path], Values]
    # What answers as the local reader does; the last argument translates filters on documents
    open: Callable[[Segment, Collection, FilterFields | None], Any]


def _document_values(made: Segment, notes: Path) -> Values:
    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        raw = list(_documents(made).raw(start, stop))
        # JSON has no line breaks.
        texts = [split(f"{fields}\n{metadata}") for _, fields, metadata in raw]
        return {ID_FIELD: [each[0] for each in raw], TEXT_FIELD: texts}

    return values


def _documents(made: Segment) -> DocumentStore:
    store = made[STORED_FIELDS]
    assert isinstance(store, DocumentStore)  # noqa: S101 - local until now
    return store


def _open_documents(segment: Segment, collection: Collection, _: FilterFields | None) -> MilvusDocuments:
    order, by_id = segment.path(COLUMNS_FOLDER) / ORDER_FILE, segment.path(STORED_FOLDER) / BY_ID_FILE
    return MilvusDocuments(collection, order, by_id)


def _posting_values(made: Segment, notes: Path) -> Values:
    postings = DocumentPostings(made[POSTINGS], notes / IMPACTS_FOLDER)
    return lambda start, stop: {WORDS_FIELD: [_vector(each, 1) for each in postings.rows(start, stop)]}


def _vector(records: NDArray[Any], first: int) -> dict[int, float]:
    return dict(zip((records["word"] + first).tolist(), records["value"].tolist(), strict=True))


def _open_postings(segment: Segment, collection: Collection, filters: FilterFields | None) -> MilvusImpacts:
    return MilvusImpacts(collection, filters, Terms.open(segment.path(IMPACTS_FOLDER), 1))


def _learned_values(made: Segment, notes: Path) -> Values:
    postings = DocumentPostings(made[LEARNED_SPARSE].learned, notes / LEARNED_FOLDER)
    first = 1 + made[POSTINGS].header.words

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = postings.rows(start, stop)
        causes = [encode(each["cause"].tobytes()) for each in rows]
        return {WORDS_FIELD: [_vector(each, first) for each in rows], CAUSES_FIELD: causes}

    return values


def _open_learned(segment: Segment, collection: Collection, filters: FilterFields | None) -> MilvusLearned:
    bm25 = Terms.open(segment.path(IMPACTS_FOLDER), 1)
    learned = Terms.open(segment.path(LEARNED_FOLDER), 1 + bm25.header.words)
    return MilvusLearned(collection, filters, bm25, learned)


def _states_values(made: Segment, notes: Path) -> Values:
    states = made[TOKEN_EMBEDDINGS]

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = (states.coded(np.array([row])) for row in range(start, stop))
        return {STATES_FIELD: [encode(each.codes.tobytes() + each.scales.tobytes()) for each in rows]}

    return values


def _open_states(segment: Segment, collection: Collection, _: FilterFields | None) -> MilvusStates:
    header = read_header(segment.path(STATES_FOLDER) / STATES_HEADER, StatesHeader)
    return MilvusStates(collection, header)


STORED: Mapping[str, Stored] = {
    each.component.name: each
    for each in (
        Stored(STORED_FIELDS, "document", {ID_FIELD: IDS, TEXT_FIELD: PIECES}, (), _document_values, _open_documents),
        Stored(POSTINGS, "document", {}, STAYING_FILES, _posting_values, _open_postings),
        Stored(LEARNED_SPARSE, "document", {CAUSES_FIELD: PIECES}, STAYING_FILES, _learned_values, _open_learned),
        Stored(TOKEN_EMBEDDINGS, "vector", {STATES_FIELD: PIECES}, (STATES_HEADER,), _states_values, _open_states),
    )
}  # fmt: skip


def open_stored(component: Component[Any, Any, Any, Any], segment: Segment) -> Any:
    """What reads a component from a collection; None if the segment does not have it in one."""
    header = stored_header(segment)
    if header is not None:
        for rows in header.collections:
            if component.name in rows.components:
                return _open(STORED[component.name], segment, header.address, rows)
    return None


def stored_header(segment: Segment) -> StoredHeader | None:
    """The collections of a segment; None if its rows are in files, as those of a delta always are."""
    if segment.below or not segment.has(f"{STORED_FOLDER}/{STORED_HEADER}"):
        return None
    return read_header(segment.path(STORED_FOLDER) / STORED_HEADER, StoredHeader)


def _open(stored: Stored, segment: Segment, address: str, rows: StoredRows) -> Any:
    """Opens a component; when its collection is opened first, the rows are checked."""
    file, held = f"{STORED_FOLDER}/{STORED_HEADER}", _COLLECTIONS.get((address, rows.collection))
    collection = held or Collection(connect(address), rows, {TEXT_FIELD: rows.text_bytes})
    collection.require_bound(file, segment.hashes)
    if rows.per == "document" and rows.rows != segment.rows.documents:
        raise MismatchError(
            f"index {segment.name}: {rows.rows} documents in {file}, {segment.rows.documents} in the manifest; {segment.remedy}"
        )
    if held is None:
        collection.check([WORDS_FIELD, *(name for each in rows.components for name in STORED[each].fields)])
        _COLLECTIONS[address, rows.collection] = collection
    columns = segment.get(COLUMNS) if rows.filters else None
    filters = None if columns is None else FilterFields(columns, rows.filters)
    return stored.open(segment, collection, filters)


def store_segment(
    made: Segment,  # a finished segment with local files, its components open
    folder: Path,  # the version's directory; the imported files are removed from it
    address: str,
    notes: Path,  # directory that survives a killed build; created if missing
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Moves the rows of components into collections; a call after a killed one resumes the import."""
    connection, prefix, target = connect(address), collection_prefix(notes), folder / STORED_FOLDER
    held = [each for name, each in STORED.items() if name in made.readers]
    groups: dict[RowUnit, list[Stored]] = {}
    for each in held:
        groups.setdefault(each.per if made.rows.first is not None else "document", []).append(each)
    collections = []
    for per, parts in groups.items():
        below = notes / per
        below.mkdir(exist_ok=True)
        filters = FilterFields(made[COLUMNS]) if per == "document" else None
        rows = StoredRows(
            collection=f"{prefix}_{per}s",
            per=per,
            components=tuple(each.component.name for each in parts),
            rows=made.rows.count(per),
            text_bytes=_documents(made).longest() if STORED_FIELDS.name in made.readers else 0,
            filters=() if filters is None else filters.names,
        )
        fields = {name: kind for each in parts for name, kind in each.fields.items()}
        values = _joined([each.values(made, below) for each in parts], filters)
        importer = CollectionImport(
            connection,
            {WORDS_FIELD: SPARSE, **fields},
            ("SPARSE_INVERTED_INDEX", {}),
            values,
            below / NOTE_FILE,
        )
        collections.append(importer.run(rows, made.hashes, advance))
    target.mkdir()
    np.save(target / BY_ID_FILE, np.argsort(made[COLUMNS].order).astype(np.uint32), allow_pickle=False)
    StoredHeader(address=address, collections=tuple(collections)).save(target / STORED_HEADER)
    for each in held:
        for path in (folder / name for name in each.component.paths):
            for file in list(path.iterdir()) if path.is_dir() else [path]:
                if file.name not in each.stays:
                    file.unlink()


def _joined(sources: Sequence[Values], filters: FilterFields | None) -> Values:
    """The values of several components, and of filters; sparse vectors are joined."""

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        vectors: list[dict[int, float]] = [{} for _ in range(start, stop)]
        joined: dict[str, Sequence[Any]] = (
            {} if filters is None else {**filters.codes(np.arange(start, stop))}
        )
        for source in sources:
            own = dict(source(start, stop))
            for vector, part in zip(vectors, own.pop(WORDS_FIELD, ()), strict=False):
                vector |= part
            joined |= own
        return {WORDS_FIELD: [vector or ALWAYS for vector in vectors], **joined}

    return values
