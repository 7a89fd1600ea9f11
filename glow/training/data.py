"""Training pairs from BEIR-style folders, preprocessed once and batched from one folder at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError
from glow.records import Document
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermCounter, TermTable, WeightedTokens, WordPieces, field_words

__all__ = ["Collection", "PairBatches", "count_terms", "read_collection"]


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """One folder's documents and the queries of one split, with their judgements.

    Attributes:
        name: the folder's name.
        documents, queries: texts; positions serve as numbers everywhere else.
        relevant: query number -> numbers of its relevant documents (grade >= 1); every query has some.
    """

    name: str
    documents: Sequence[Document]
    queries: Sequence[str]
    relevant: Sequence[frozenset[int]]

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Every judged relevant pair, int64 [pairs, 2], in file order."""
        rows = [(query, document) for query, found in enumerate(self.relevant) for document in sorted(found)]
        return np.array(rows, np.int64).reshape(-1, 2)


def read_collection(folder: Path, split: str, schema: FieldSchema) -> Collection:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` of a folder.

    Raises:
        InputError: a file is missing or bad, or the split judges nothing that is there.
    """
    documents = list(read_documents(folder / "corpus.jsonl", schema.names))
    numbers = {document.id: number for number, document in enumerate(documents)}
    texts = {query.id: query.text for query in read_queries(folder / "queries.jsonl")}
    judged: dict[str, set[int]] = {}
    for qrel in read_qrels(folder / "qrels" / f"{split}.tsv"):
        if qrel.grade >= 1 and qrel.document_id in numbers and qrel.query_id in texts:
            judged.setdefault(qrel.query_id, set()).add(numbers[qrel.document_id])
    if not judged:
        raise InputError(f"split {split!r} of {folder} judges no query and document that are there")
    queries = [texts[identifier] for identifier in judged]
    return Collection(folder.name, documents, queries, [frozenset(found) for found in judged.values()])


def count_terms(collections: Sequence[Collection], schema: FieldSchema, pieces: WordPieces) -> TermTable:
    """The term table of the training collection: all documents, and the queries' average length.

    A document that several folders hold (a collection and the pairs synthesised from it) counts once.
    """
    counter = TermCounter()
    seen: set[int] = set()
    for collection in collections:
        for document in collection.documents:
            key = hash((document.id, tuple(document.fields.items())))
            if key not in seen:
                seen.add(key)
                counter.add(field_words(document, schema, pieces))
        for query in collection.queries:
            counter.add_query(pieces.words(query))
    return counter.table()


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """B pairs of one collection.

    Attributes:
        collection: its number.
        queries, documents: int64 [B], numbers in the collection.
        relevant: bool [B, B], where document j answers query i, by judgement or equal text.
    """

    collection: int
    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    relevant: NDArray[np.bool_]


class PairBatches:
    """Preprocessed collections and the order of their pairs.

    Args:
        collections: what to train on.
        preprocessor: one for queries and documents.
        batch_size: B.
        seed: of the order; an epoch's order depends on it and on the epoch alone, so a run can resume.
    """

    def __init__(
        self, collections: Sequence[Collection], preprocessor: Preprocessor, batch_size: int, seed: int
    ) -> None:
        self.collections = collections
        self.batch_size = batch_size
        self.seed = seed
        self.pad_id = preprocessor.pieces.pad_id
        self.queries = [[preprocessor.query(text) for text in c.queries] for c in collections]
        self.documents = [[preprocessor.document(document) for document in c.documents] for c in collections]
        self._pairs = [collection.pairs for collection in collections]
        self._query_keys = [_keys(queries) for queries in self.queries]
        self._document_keys = [_keys(documents) for documents in self.documents]

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over all pairs; a short last batch of a collection is left out."""
        return sum(max(len(pairs) // self.batch_size, 1) for pairs in self._pairs)

    def epoch(self, number: int) -> Iterator[PairBatch]:
        """Batches of one pass, each from one collection (harder negatives than a mixture), in random order."""
        random = np.random.default_rng([self.seed, number])
        batches = []
        for collection, pairs in enumerate(self._pairs):
            order = random.permutation(len(pairs))
            for start in range(0, max(len(order) - self.batch_size + 1, 1), self.batch_size):
                batches.append((collection, pairs[order[start : start + self.batch_size]]))
        for choice in random.permutation(len(batches)):
            collection, pairs = batches[choice]
            yield PairBatch(collection, pairs[:, 0], pairs[:, 1], self._relevant(collection, pairs))

    def _relevant(self, collection: int, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        judged = self.collections[collection].relevant
        queries, documents = pairs[:, 0], pairs[:, 1]
        known = np.array([[document in judged[query] for document in documents] for query in queries])
        query_keys = self._query_keys[collection][queries]
        document_keys = self._document_keys[collection][documents]
        equal_query = query_keys[:, None] == query_keys[None, :]
        equal_document = document_keys[:, None] == document_keys[None, :]
        return np.asarray(known | equal_query | equal_document)


def _keys(sequences: Sequence[WeightedTokens]) -> NDArray[np.int64]:
    """Equal numbers for texts that look equal to a tower."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(s.ids.tobytes(), len(numbers)) for s in sequences], np.int64)
