"""Readers of components whose rows are in a collection: documents, impacts and token embeddings.

m   rows        v   words       t   terms of a query
"""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.learned_sparse import Expansion
from glow.index.milvus.collection import Collection, FilterFields, RowSearch
from glow.index.postings import (
    Block,
    ImpactHeader,
    Vocabulary,
    count_terms,
    lexical_maxima,
    read_counts,
    read_impacts_header,
)
from glow.index.ranking import Ranking, RowMask, best
from glow.index.stored_fields import not_found, parse_document
from glow.index.token_embeddings import CodedStates, StatesHeader, TokenEmbeddingStore, code_bytes
from glow.records import Document
from glow.storage import map_array
from glow.text import Analyzer

PIECE = 16_000
"""Characters of at most 4 bytes."""


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
PROBES, FEW_PROBES = 64, 3
"""Ids that a step of a search for one id reads: four steps for ten million documents; and the least if many are searched."""


class MilvusDocuments:
    """Documents by row and by id; arguments and results as for `DocumentStore`."""

    def __init__(
        self,
        collection: Collection,  # of the documents
        order: Path,  # file with the rank of each row's id
        by_id: Path,  # file with the rows in the order of their ids
    ) -> None:
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
        """The document with an id."""
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
    """Id, fields and metadata."""
    fields, line, metadata = "".join(entity[TEXT_FIELD]).partition("\n")
    if not line:
        raise FormatError(f"the stored document {entity[ID_FIELD]!r} is damaged; rebuild the index")
    return entity[ID_FIELD], fields, metadata


WORDS_FIELD, CAUSES_FIELD = "words", "causes"
NO_CAUSE = 255


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The terms of BM25, or of learned impacts, whose files stay in the version's directory."""

    header: ImpactHeader  # kind and counts
    vocabulary: Vocabulary  # the words
    analyzer: Analyzer  # turns words into terms
    starts: NDArray[np.int64]  # int64 [v + 1]; the difference of two is a word's document frequency
    maxima: NDArray[np.float32]  # float32 [v], each word's largest impact
    first: int  # dimension of the first word

    @classmethod
    def open(cls, folder: Path, first: int) -> "Terms":
        """Opens the files that stay."""
        header = read_impacts_header(folder)
        words, analyzer = Vocabulary.load(folder), Analyzer(header.analyzer)
        return cls(header, words, analyzer, *read_counts(folder, header), first)

    def rows(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Rows in the vocabulary, ascending, and how often the query has each."""
        counted = count_terms(self.analyzer, words).items()
        return sorted((row, count) for word, count in counted if (row := self.vocabulary.row(word)) >= 0)

    def of(self, words: Sequence[str]) -> dict[int, float]:
        """The terms of a query: dimension of the sparse vector -> factor of its number."""
        return {self.first + row: self.header.unit * count for row, count in self.rows(words)}

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of what a query's words add to a document's score."""
        return float(sum(float(self.maxima[row]) * count for row, count in self.rows(words)))


class MilvusImpacts:
    """Arguments and results as for `ImpactIndex`."""

    is_remote = True

    def __init__(
        self,
        collection: Collection,  # of the documents
        filters: FilterFields | None,  # translates filters; None: they are sent as rows
        bm25: Terms,  # the terms; or those of learned impacts, for merging
    ) -> None:
        self._collection, self._filters, self._bm25 = collection, filters, bm25
        self.header, self.vocabulary, self.analyzer = bm25.header, bm25.vocabulary, bm25.analyzer
        self._maxima = lexical_maxima(self, bm25.maxima)
        self.largest = float(self._maxima.max(initial=0.0))

    def __len__(self) -> int:
        return self.header.documents

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest scores, all > 0."""
        terms = self._terms(words)
        most = min(k, len(self) if allowed is None else allowed.count)
        if not terms or most == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        scores, rows = self._search(terms).nearest(most, allowed)
        return best(scores[scores > 0], rows[scores > 0], k, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents."""
        terms = self._terms(words)
        return self._search(terms).score(rows) if terms else np.zeros(len(rows), np.float32)

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]."""
        read = self._collection.read(rows.tolist(), (WORDS_FIELD,), caches=True)
        vectors = [each[WORDS_FIELD] for each in read]
        added = np.zeros((len(rows), len(words)), np.float32)
        for column, word in enumerate(words):
            for term, factor in self._terms([word]).items():
                added[:, column] += [factor * vector.get(term, 0.0) for vector in vectors]
        return added

    def holds(self, word: str) -> bool:
        """Whether any document has a word, or another with the same term."""
        return self.vocabulary.row(self.analyzer.term(word)) >= 0

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return self._bm25.bound(words)

    def largest_of(self, alive: RowMask | None) -> float:
        """The largest impact in some documents; None: in all. Few words are searched: those with the largest impacts."""
        if alive is None:
            return self.largest
        largest = 0.0
        for word in np.argsort(-self._maxima, kind="stable").tolist():
            if self._maxima[word] <= largest:
                break
            scores, _ = self._search({self._bm25.first + word: self.header.unit}).nearest(1, alive)
            largest = max(largest, float(scores.max(initial=0.0)))
        return largest

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings in blocks of some rows, and within these in the order of words; codes, if impacts are learned."""
        del most
        first, row, is_learned = self._bm25.first, 0, self.header.kind == "learned"
        for entities in self._collection.scan((WORDS_FIELD, CAUSES_FIELD) if is_learned else (WORDS_FIELD,)):
            vectors = [each[WORDS_FIELD] for each in entities]
            rows = np.repeat(np.arange(row, row + len(vectors), dtype=np.uint32), list(map(len, vectors)))
            words = np.fromiter((int(dim) - first for vector in vectors for dim in vector), np.int64)
            values = np.fromiter((value for vector in vectors for value in vector.values()), np.float32)
            kept = np.flatnonzero((words >= 0) & (words < self.header.words))
            kept = kept[np.lexsort((words[kept], rows[kept]))]  # the order of the causes
            order = np.argsort(words[kept], kind="stable")
            causes = None
            if is_learned:
                values = values.astype(np.uint8)
                every = [np.frombuffer(decode(each[CAUSES_FIELD]), np.uint8) for each in entities]
                causes = np.concatenate(every)[order]
            kept = kept[order]
            yield Block(words[kept], rows[kept], values[kept], causes)
            row += len(entities)

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        for row, count in enumerate(np.diff(self._bm25.starts).tolist()):
            yield self.vocabulary.word(row), count

    def _terms(self, words: Sequence[str]) -> dict[int, float]:
        return self._bm25.of(words)

    def _search(self, terms: Mapping[int, float]) -> RowSearch:
        return RowSearch(self._collection, WORDS_FIELD, terms, self._filters)


class MilvusLearned(MilvusImpacts):
    """BM25 and learned impacts as one; arguments and results as for `LearnedImpacts`."""

    def __init__(
        self,
        collection: Collection,  # collection, filters, bm25: as for `MilvusImpacts`
        filters: FilterFields | None,
        bm25: Terms,
        learned: Terms,  # terms of the learned impacts
    ) -> None:
        super().__init__(collection, filters, bm25)
        self._learned = learned

    @property
    def learned(self) -> MilvusImpacts:
        """The learned impacts without BM25."""
        return MilvusImpacts(self._collection, self._filters, self._learned)

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return self._bm25.bound(words) + self._learned.bound(words)

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each query word adds, by source; words that add nothing are left out."""
        found: dict[str, Expansion] = {}
        entity = self._collection.read([row], (WORDS_FIELD, CAUSES_FIELD))[0]
        vector, first = entity[WORDS_FIELD], self._learned.first
        dims = sorted(dim for dim in vector if dim >= first)
        causes = dict(zip(dims, decode(entity[CAUSES_FIELD]), strict=True))
        for word, count in Counter(words).items():
            bm25, learned = (
                count * sum(factor * vector.get(dim, 0.0) for dim, factor in terms.of([word]).items())
                for terms in (self._bm25, self._learned)
            )
            if bm25 or learned:
                cause = causes.get(first + self._learned.vocabulary.row(word), NO_CAUSE)
                found[word] = Expansion(bm25, learned, None if cause == NO_CAUSE or not learned else cause)
        return found

    def _terms(self, words: Sequence[str]) -> dict[int, float]:
        return self._bm25.of(words) | self._learned.of(words)


STATES_FIELD = "states"


class MilvusStates(TokenEmbeddingStore):
    """Token embeddings in a collection."""

    def __init__(
        self,
        collection: Collection,  # of the rows
        header: StatesHeader,  # of the store; its file stays in the version's directory
    ) -> None:
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
