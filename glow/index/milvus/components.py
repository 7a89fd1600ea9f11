"""Components whose rows are in collections: how each is written there, and what reads it.

A version is built with local files. Then `store_segment` imports the rows of these components, one collection for documents and one for
passages, and removes the files. What does not grow with documents stays: headers, vocabularies, document frequencies, term statistics.
Metadata columns stay as well, because filters, facets and sorting scan them.

m   rows        v   words       t   tokens
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError, MismatchError
from glow.index.columns import COLUMNS, COLUMNS_FOLDER, ORDER_FILE
from glow.index.component import Component
from glow.index.learned_sparse import LEARNED_SPARSE, LearnedImpacts
from glow.index.milvus.collection import Collection, FilterFields, RowSearch
from glow.index.milvus.connection import (
    BY_ID_FILE,
    STORED_FOLDER,
    STORED_HEADER,
    RowUnit,
    StoredHeader,
    StoredRows,
    connect,
)
from glow.index.milvus.write import (
    NOTE_FILE,
    CollectionImport,
    DocumentPostings,
    FieldType,
    Values,
    collection_prefix,
)
from glow.index.postings import (
    IMPACTS_FOLDER,
    LEARNED_FOLDER,
    POSTINGS,
    STAYING_FILES,
    Block,
    ImpactIndex,
    Vocabulary,
    count_terms,
    lexical_maxima,
    read_counts,
    read_impacts_header,
)
from glow.index.postings.lists import Lists
from glow.index.ranking import Ranking, RowMask, best
from glow.index.segment import Segment
from glow.index.stored_fields import STORED_FIELDS, DocumentFinder, DocumentStore, parse_document
from glow.index.token_embeddings import (
    STATES_FOLDER,
    STATES_HEADER,
    TOKEN_EMBEDDINGS,
    CodedStates,
    StatesHeader,
    TokenEmbeddingStore,
    code_bytes,
)
from glow.records import Document
from glow.storage import map_array, read_header

PIECE = 16_000
"""Characters of at most 4 bytes."""
PIECES: FieldType = ("ARRAY", {"element_type": "VARCHAR", "max_length": 65_535, "max_capacity": 4_096})


def split(text: str) -> list[str]:
    """A text as pieces; an empty one has one."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)] or [""]


def encode(data: bytes) -> list[str]:
    """Bytes as pieces, a third longer; base 85 would be a quarter longer, and in Python thirty times as slow."""
    return split(base64.b64encode(data).decode("ascii"))


def decode(pieces: Sequence[str]) -> bytes:
    """The bytes of pieces."""
    return base64.b64decode("".join(pieces))


ID_FIELD, TEXT_FIELD = "id", "text"
BOTH = (ID_FIELD, TEXT_FIELD)
IDS: FieldType = ("VARCHAR", {"max_length": 65_535})
PROBES, FEW_PROBES = 64, 3
"""Ids that a step of a search for one id reads: four steps for ten million documents; and the least if many are searched."""


class MilvusDocuments(DocumentFinder):
    """Documents by row and by id; arguments and results as for `DocumentStore`."""

    def __init__(self, segment: Segment, collection: Collection, _: FilterFields | None) -> None:
        self._collection, self.count = collection, collection.rows
        self._by_id = map_array(segment.path(STORED_FOLDER) / BY_ID_FILE, np.uint32, self.count)
        self._order = segment.path(COLUMNS_FOLDER) / ORDER_FILE  # the rank of each row's id

    def rows(self, rows: Sequence[int]) -> list[Document]:
        return [parse_document(each) for each in self._raw([int(row) for row in rows])]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The ids of rows, in the given order, without the documents."""
        return [each[ID_FIELD] for each in self._collection.read([int(row) for row in rows], (ID_FIELD,))]

    def find_all(self, ids: Sequence[str]) -> list[int | None]:
        if self.count == 0:
            return [None] * len(ids)
        rows = self._by_id[np.minimum(self._places(ids), self.count - 1)].tolist()
        return [
            row if own == each else None for row, own, each in zip(rows, self.ids(rows), ids, strict=True)
        ]

    def rows_before(self, ids: Sequence[str]) -> list[int | None]:
        """For each id the row of the last one before it in code point order; the ids may be absent."""
        return [None if place == 0 else int(self._by_id[place - 1]) for place in self._places(ids).tolist()]

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the documents of rows `start` to `stop` (not included; None: to the end) in order."""
        for entities in self._collection.scan(BOTH, start, stop):
            for each in entities:
                yield parse_document(_record(each))

    def by_id(self, after: str = "") -> Iterator[tuple[str, int, str, str]]:
        """Yields id, row, fields and metadata (as stored JSON) of the documents after an id, in code point order of ids."""
        first = int(self._places([after])[0]) if after else 0
        for start in range(first, self.count, PROBES):
            rows = self._by_id[start : start + PROBES].tolist()
            for row, (identifier, fields, metadata) in zip(rows, self._raw(rows), strict=True):
                if identifier != after:
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
        keys = [each.encode() for each in ids]
        low, high = np.zeros(len(ids), np.int64), np.full(len(ids), self.count, np.int64)
        while len(searched := np.flatnonzero(low < high)):
            most = max(PROBES // len(searched), FEW_PROBES)
            probes = {
                each: np.unique(np.linspace(low[each], high[each] - 1, most).astype(np.int64))
                for each in searched.tolist()
            }
            every = np.unique(np.concatenate(list(probes.values())))
            # The first steps of every search read the same ids.
            values = self._collection.read(
                self._by_id[every].tolist(), (ID_FIELD,), caches=len(every) <= PROBES
            )
            names = {
                place: each[ID_FIELD].encode() for place, each in zip(every.tolist(), values, strict=True)
            }
            for each, places in probes.items():
                before = sum(names[place] < keys[each] for place in places.tolist())
                if before:
                    low[each] = places[before - 1] + 1
                if before < len(places):
                    high[each] = places[before]
        return low


def _record(entity: Any) -> tuple[str, str, str]:
    """Id, fields and metadata."""
    fields, line, metadata = "".join(entity[TEXT_FIELD]).partition("\n")
    if not line:
        raise FormatError(f"the stored document {entity[ID_FIELD]!r} is damaged; rebuild the index")
    return entity[ID_FIELD], fields, metadata


def _document_values(segment: Segment, notes: Path) -> Values:
    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        raw = list(_documents(segment).raw(start, stop))
        # JSON has no line breaks.
        texts = [split(f"{fields}\n{metadata}") for _, fields, metadata in raw]
        return {ID_FIELD: [each[0] for each in raw], TEXT_FIELD: texts}

    return values


def _documents(segment: Segment) -> DocumentStore:
    store = segment[STORED_FIELDS]
    assert isinstance(store, DocumentStore)  # noqa: S101 - local until now
    return store


WORDS_FIELD, CAUSES_FIELD = "words", "causes"
SPARSE: FieldType = ("SPARSE_FLOAT_VECTOR", {})
ALWAYS = {0: 1.0}
"""A collection needs a vector of each entity; no query has this dimension, so it never adds to a score."""


class SparseSearch(ABC):
    """Searches sparse vectors of terms, with Milvus' own scores; arguments and results as for `ImpactIndex`."""

    is_remote = True
    collection: Collection  # of the documents
    filters: FilterFields | None  # translates filters; None: they are sent as rows

    @abstractmethod
    def terms(self, words: Sequence[str]) -> dict[int, float]:
        """The terms of a query: dimension of the vectors -> factor of its number."""

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest scores, all > 0."""
        terms = self.terms(words)
        most = min(k, self.collection.rows if allowed is None else allowed.count)
        if not terms or most == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        scores, rows = self.searches(terms).nearest(most, allowed)
        return best(scores[scores > 0], rows[scores > 0], k, order)

    def searches(self, terms: Mapping[int, float]) -> RowSearch:
        """Searches for terms, at least one."""
        return RowSearch(self.collection, WORDS_FIELD, terms, self.filters)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents."""
        terms = self.terms(words)
        return self.searches(terms).score(rows) if terms else np.zeros(len(rows), np.float32)

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]."""
        read = self.collection.read(rows.tolist(), (WORDS_FIELD,), caches=True)
        vectors = [each[WORDS_FIELD] for each in read]
        added = np.zeros((len(rows), len(words)), np.float32)
        for column, word in enumerate(words):
            for term, factor in self.terms([word]).items():
                added[:, column] += [factor * vector.get(term, 0.0) for vector in vectors]
        return added


class MilvusImpacts(SparseSearch, ImpactIndex):
    """BM25, or learned impacts alone; words, document frequencies and maxima are in files."""

    def __init__(
        self,
        segment: Segment,
        collection: Collection,
        filters: FilterFields | None,
        folder: str = IMPACTS_FOLDER,  # of the segment, with `STAYING_FILES`
        first: int = 1,  # dimension of the first word
    ) -> None:
        path, none = segment.path(folder), np.empty(0, np.uint32)
        header = read_impacts_header(path)
        lists = Lists(*read_counts(path, header), none, none.view(np.float32), None, header.unit)
        super().__init__(header, Vocabulary.load(path), lists)
        self.collection, self.filters, self._first = collection, filters, first

    def terms(self, words: Sequence[str]) -> dict[int, float]:
        counts, unit = count_terms(self.analyzer, words), self.header.unit
        rows = {self.vocabulary.row(word): count for word, count in counts.items()}
        return {self._first + row: unit * count for row, count in rows.items() if row >= 0}

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all. Few words are searched: those with the largest impacts."""
        if alive is None:
            return self.largest
        largest, maxima = 0.0, lexical_maxima(self, self.postings.maxima)
        for word in np.argsort(-maxima, kind="stable").tolist():
            if maxima[word] <= largest:
                break
            scores, _ = self.searches({self._first + word: self.header.unit}).nearest(1, alive)
            largest = max(largest, float(scores.max(initial=0.0)))
        return largest

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings in blocks of some rows, and within these in the order of words; codes, if impacts are learned."""
        del most
        row, is_learned = 0, self.header.kind == "learned"
        for entities in self.collection.scan((WORDS_FIELD, CAUSES_FIELD) if is_learned else (WORDS_FIELD,)):
            vectors = [each[WORDS_FIELD] for each in entities]
            rows = np.repeat(np.arange(row, row + len(vectors), dtype=np.uint32), list(map(len, vectors)))
            words = np.fromiter((dim for vector in vectors for dim in vector), np.int64) - self._first
            values = np.fromiter((value for vector in vectors for value in vector.values()), np.float32)
            known = np.flatnonzero((words >= 0) & (words < self.header.words))
            known = known[np.lexsort((words[known], rows[known]))]  # the order of the causes
            order = np.argsort(words[known], kind="stable")
            causes = None
            if is_learned:
                values = values.astype(np.uint8)
                every = [np.frombuffer(decode(each[CAUSES_FIELD]), np.uint8) for each in entities]
                causes = np.concatenate(every)[order]
            known = known[order]
            yield Block(words[known], rows[known], values[known], causes)
            row += len(entities)

    def cause(self, word: str, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        entity = self.collection.read([row], (WORDS_FIELD, CAUSES_FIELD), caches=True)[0]
        dims = sorted(dim for dim in entity[WORDS_FIELD] if dim >= self._first)
        causes = dict(zip(dims, decode(entity[CAUSES_FIELD]), strict=True))
        return causes.get(self._first + self.vocabulary.row(word))


class MilvusLearned(SparseSearch, LearnedImpacts):
    """BM25 and learned impacts as one."""

    def __init__(self, segment: Segment, collection: Collection, filters: FilterFields | None) -> None:
        bm25 = MilvusImpacts(segment, collection, filters)
        learned = MilvusImpacts(segment, collection, filters, LEARNED_FOLDER, 1 + bm25.header.words)
        super().__init__(bm25, learned)
        self.collection, self.filters, self._parts = collection, filters, (bm25, learned)

    def terms(self, words: Sequence[str]) -> dict[int, float]:
        return self._parts[0].terms(words) | self._parts[1].terms(words)

    def largest_of(self, alive: RowMask | None) -> float:
        """As that of BM25."""
        return self._bm25.largest_of(alive)


def _posting_values(segment: Segment, notes: Path) -> Values:
    postings = DocumentPostings(segment[POSTINGS], notes / IMPACTS_FOLDER)
    return lambda start, stop: {WORDS_FIELD: [_vector(each, 1) for each in postings.rows(start, stop)]}


def _vector(records: NDArray[Any], first: int) -> dict[int, float]:
    return dict(zip((records["word"] + first).tolist(), records["value"].tolist(), strict=True))


def _learned_values(segment: Segment, notes: Path) -> Values:
    postings = DocumentPostings(segment[LEARNED_SPARSE].learned, notes / LEARNED_FOLDER)
    first = 1 + segment[POSTINGS].header.words

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = postings.rows(start, stop)
        causes = [encode(each["cause"].tobytes()) for each in rows]
        return {WORDS_FIELD: [_vector(each, first) for each in rows], CAUSES_FIELD: causes}

    return values


STATES_FIELD = "states"


class MilvusStates(TokenEmbeddingStore):
    """Token embeddings in a collection."""

    def __init__(self, segment: Segment, collection: Collection, _: FilterFields | None) -> None:
        header = read_header(segment.path(STATES_FOLDER) / STATES_HEADER, StatesHeader)
        none, empty = np.zeros(1, np.int64), np.empty((0, 0), np.uint8)
        super().__init__(header, none, empty, np.empty(0, np.float16))
        self._collection = collection

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        return self.coded(rows).lengths

    def coded(self, rows: NDArray[np.int64]) -> CodedStates:
        """Rows in their stored form."""
        width = code_bytes(self.header.size)
        read = self._collection.read(rows.tolist(), (STATES_FIELD,), caches=True)
        blobs = [decode(each[STATES_FIELD]) for each in read]
        lengths = [len(blob) // (width + 2) for blob in blobs]
        codes = b"".join(blob[: size * width] for blob, size in zip(blobs, lengths, strict=True))
        scales = b"".join(blob[size * width :] for blob, size in zip(blobs, lengths, strict=True))
        return CodedStates(
            np.array(lengths, np.int64),
            np.frombuffer(codes, np.uint8).reshape(-1, width),
            np.frombuffer(scales, np.float16),
        )


def _states_values(segment: Segment, notes: Path) -> Values:
    states = segment[TOKEN_EMBEDDINGS]

    def values(start: int, stop: int) -> Mapping[str, Sequence[Any]]:
        rows = (states.coded(np.array([row])) for row in range(start, stop))
        return {STATES_FIELD: [encode(each.codes.tobytes() + each.scales.tobytes()) for each in rows]}

    return values


_COLLECTIONS: WeakValueDictionary[tuple[str, str], Collection] = WeakValueDictionary()
"""Open collections, which the components of a version share."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One component in a collection."""

    component: Component[Any, Any]
    per: RowUnit  # unit of its rows
    fields: Mapping[str, FieldType]  # of an entity, besides the sparse vector
    stays: tuple[str, ...]  # names of its files that stay in the version's directory
    # Reads the values of rows from the local files; the second argument is a directory for temporary files
    values: Callable[[Segment, Path], Values]
    # What answers as the local reader does; the last argument translates filters on documents
    open: Callable[[Segment, Collection, FilterFields | None], Any]


STORED: Mapping[str, Stored] = {
    each.component.name: each
    for each in (
        Stored(STORED_FIELDS, "document", {ID_FIELD: IDS, TEXT_FIELD: PIECES}, (), _document_values, MilvusDocuments),
        Stored(POSTINGS, "document", {}, STAYING_FILES, _posting_values, MilvusImpacts),
        Stored(LEARNED_SPARSE, "document", {CAUSES_FIELD: PIECES}, STAYING_FILES, _learned_values, MilvusLearned),
        Stored(TOKEN_EMBEDDINGS, "vector", {STATES_FIELD: PIECES}, (STATES_HEADER,), _states_values, MilvusStates),
    )
}  # fmt: skip


def open_stored(component: Component[Any, Any], segment: Segment) -> Any:
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
    file, known = f"{STORED_FOLDER}/{STORED_HEADER}", _COLLECTIONS.get((address, rows.collection))
    collection = known or Collection(connect(address), rows, {TEXT_FIELD: rows.text_bytes})
    collection.require_bound(file, segment.hashes)
    if rows.per == "document" and rows.rows != segment.rows.documents:
        raise MismatchError(
            f"index {segment.name}: {rows.rows} documents in {file}, {segment.rows.documents} in the manifest; {segment.remedy}"
        )
    if known is None:
        collection.check([WORDS_FIELD, *(name for each in rows.components for name in STORED[each].fields)])
        _COLLECTIONS[address, rows.collection] = collection
    columns = segment.get(COLUMNS) if rows.filters else None
    filters = None if columns is None else FilterFields(columns, rows.filters)
    return stored.open(segment, collection, filters)


def store_segment(
    segment: Segment,  # a finished segment with local files, its components open
    folder: Path,  # the version's directory; the imported files are removed from it
    address: str,
    notes: Path,  # directory that survives a killed build; created if missing
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Moves the rows of components into collections; a call after a killed one resumes the import."""
    connection, prefix, target = connect(address), collection_prefix(notes), folder / STORED_FOLDER
    stored = [each for name, each in STORED.items() if name in segment.readers]
    groups: dict[RowUnit, list[Stored]] = {}
    for each in stored:
        groups.setdefault(each.per if segment.rows.first is not None else "document", []).append(each)
    collections = []
    for per, parts in groups.items():
        below = notes / per
        below.mkdir(exist_ok=True)
        filters = FilterFields(segment[COLUMNS]) if per == "document" else None
        rows = StoredRows(
            collection=f"{prefix}_{per}s",
            per=per,
            components=tuple(each.component.name for each in parts),
            rows=segment.rows.count(per),
            text_bytes=_documents(segment).longest(),
            filters=() if filters is None else filters.names,
        )
        fields = {name: kind for each in parts for name, kind in each.fields.items()}
        values = _joined([each.values(segment, below) for each in parts], filters)
        importer = CollectionImport(
            connection,
            {WORDS_FIELD: SPARSE, **fields},
            ("SPARSE_INVERTED_INDEX", {}),
            values,
            below / NOTE_FILE,
        )
        collections.append(importer.run(rows, segment.hashes, advance))
    target.mkdir()
    np.save(target / BY_ID_FILE, np.argsort(segment[COLUMNS].order).astype(np.uint32), allow_pickle=False)
    StoredHeader(address=address, collections=tuple(collections)).save(target / STORED_HEADER)
    for each in stored:
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
