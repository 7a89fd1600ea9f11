"""Training pairs from data directories with relevance judgments: texts, hashes, and batches by step."""

import fcntl
import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from glow.collection import bare_line, has_text, parse_document, read_documents, read_qrels, read_queries
from glow.errors import InputError, IntegrityError, RecordError
from glow.negatives import documents_hash
from glow.records import Document
from glow.schema import FieldSchema
from glow.text import (
    Preprocessor,
    TermCounter,
    TermTable,
    WeightedTokens,
    WordPieces,
    field_words,
    misspell_in,
)
from glow.training.run import parts_hash


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Admits one process at a time by a lock on a file, which stays as an empty file.

    A barrier of the process group is not suitable: it times out after some minutes, and there is no group yet during
    data preparation. The kernel frees the lock of a process that dies.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
    except OSError as error:
        raise InputError(f"cannot write {lock}: {error.strerror}; give a writable directory") from error
    with file:  # closing it releases the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class CorpusFile(Sequence[Document]):
    """The documents of `read_documents`, each parsed on access; iteration reads the file sequentially.

    An initial pass finds their byte offsets and ids, which take 16 bytes per document plus its id.
    """

    def __init__(self, path: Path, field_names: Sequence[str]) -> None:
        self.ids: list[str] = []
        self._path, self._field_names = path, tuple(field_names)
        self._offsets, self._lengths = array("q"), array("q")
        try:
            with path.open("rb") as file:
                self._scan(file)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error

    def __len__(self) -> int:
        """Number of documents with text."""
        return len(self._offsets)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> list[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | list[Document]:
        """Reads one document or several; each call opens the file, which is safe with forks and threads."""
        if isinstance(number, slice):
            return [self[position] for position in range(*number.indices(len(self)))]
        with self._path.open("rb", buffering=0) as file:
            return self._read(file, range(len(self))[number])

    def __iter__(self) -> Iterator[Document]:
        """Yields all documents in file order."""
        with self._path.open("rb") as file:
            for position in range(len(self)):
                yield self._read(file, position)

    def _scan(self, file: BinaryIO) -> None:
        offset = 0
        for number, line in enumerate(file, start=1):
            content = bare_line(line, is_first=number == 1)
            if content.strip():
                try:
                    document = parse_document(content, self._field_names)
                except RecordError as error:
                    raise RecordError(f"{self._path.name} line {number}: {error}") from error
                if has_text(document):
                    self.ids.append(document.id)
                    self._offsets.append(offset)
                    self._lengths.append(len(line))
            offset += len(line)

    def _read(self, file: BinaryIO, position: int) -> Document:
        offset = self._offsets[position]
        file.seek(offset)
        line = file.read(self._lengths[position])
        try:
            document = parse_document(bare_line(line, is_first=offset == 0), self._field_names)
        except RecordError:
            document = None
        if document is None or document.id != self.ids[position]:
            raise IntegrityError(f"{self._path} has changed since it was opened; start again")
        return document


MOST_BYTES_IN_MEMORY = 1 << 30
"""A larger `corpus.jsonl` stays on disk; in memory its documents would take more than its size."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """A data directory's documents and the queries of one split, with their relevance judgments."""

    name: str  # the directory's name
    # documents, queries: texts; their positions are the numbers used elsewhere. Documents may be read on demand.
    documents: Sequence[Document]
    queries: Sequence[str]
    query_ids: Sequence[str]  # ids of the queries
    # query number -> numbers of its relevant documents (grade >= 1), at least one
    relevant: Sequence[frozenset[int]]
    # query number -> numbers of its hard negatives, if any
    negatives: Sequence[tuple[int, ...]] | None = None

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Every judged relevant pair, int64 [pairs, 2], in file order."""
        rows = [
            (query, document)
            for query, documents in enumerate(self.relevant)
            for document in sorted(documents)
        ]
        return np.array(rows, np.int64).reshape(-1, 2)


def read_collection(
    folder: Path, split: str, schema: FieldSchema, most_bytes: int = MOST_BYTES_IN_MEMORY
) -> Collection:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` of a directory."""
    documents = _documents(folder, schema, most_bytes)
    ids = documents.ids if isinstance(documents, CorpusFile) else [document.id for document in documents]
    numbers = {identifier: number for number, identifier in enumerate(ids)}
    texts = {query.id: query.text for query in read_queries(folder / "queries.jsonl")}
    judged: dict[str, set[int]] = {}
    for qrel in read_qrels(folder / "qrels" / f"{split}.tsv"):
        if qrel.grade >= 1 and qrel.document_id in numbers and qrel.query_id in texts:
            judged.setdefault(qrel.query_id, set()).add(numbers[qrel.document_id])
    if not judged:
        raise InputError(f"split {split!r} of {folder} judges none of its queries and documents")
    queries = [texts[identifier] for identifier in judged]
    return Collection(
        folder.resolve().name,
        documents,
        queries,
        list(judged),
        [frozenset(found) for found in judged.values()],
    )


def _documents(folder: Path, schema: FieldSchema, most_bytes: int) -> Sequence[Document]:
    """The documents of a directory, in memory or on disk."""
    path = folder / "corpus.jsonl"
    if path.is_file() and path.stat().st_size > most_bytes:
        return CorpusFile(path, schema.names)
    return list(read_documents(path, schema.names))


def count_terms(collections: Sequence[Collection], schema: FieldSchema, pieces: WordPieces) -> TermTable:
    """Term statistics of the training data: all documents, and the queries' average length.

    A document in several directories (a dataset and the pairs synthesized from it) counts once.
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


def collection_hash(collection: Collection) -> str:
    """SHA-256 of a collection's documents, queries, judgments and negatives, in hexadecimal digits."""
    parts = [
        documents_hash(collection.documents),
        _sha256(json.dumps(list(collection.queries)).encode()),
        _sha256(collection.pairs.tobytes()),
        _negatives_hash(collection.negatives),
    ]
    return parts_hash(parts)


def _negatives_hash(negatives: Sequence[tuple[int, ...]] | None) -> str:
    """Hashes the numbers, because two readings of the same files are two objects."""
    if negatives is None:
        return ""
    counts = np.fromiter((len(rows) for rows in negatives), np.int64, len(negatives))
    numbers = np.fromiter((number for rows in negatives for number in rows), np.int64, int(counts.sum()))
    return _sha256(counts.tobytes() + numbers.tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ROUNDS = 10


def topics_of(vectors: NDArray[np.float32], topics: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each vector, int64 [n], in 0 to `topics` - 1, by spherical k-means.

    A batch of one topic has documents that are hard to tell apart (Hofstätter et al. 2021, TAS-B,
    https://arxiv.org/abs/2104.06967, section 3.1).

    `vectors` is float32 [n, H], L2-normalized, n >= 1.
    """
    random = np.random.default_rng(seed)
    centres = vectors[random.choice(len(vectors), min(topics, len(vectors)), replace=False)]
    labels = np.zeros(len(vectors), np.int64)
    for _ in range(ROUNDS):
        labels = np.argmax(vectors @ centres.T, axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
    return labels


Rows = tuple[int, NDArray[np.int64]]
"""A collection's number, and numbers of its pairs or queries."""


class Turn(NamedTuple):
    """A batch of an epoch: its rows, and a random generator of its own."""

    collection: int
    rows: NDArray[np.int64]
    random: np.random.Generator


class Epochs:
    """Batches by their step; `plan` draws those of an epoch with the generator that then draws their order.

    An epoch's order depends only on the seed and the epoch, so a run can resume.
    """

    def __init__(
        self,
        batches: int,
        epochs: int,
        max_steps: int,
        seed: int,
        plan: Callable[[np.random.Generator], list[Rows]],
    ) -> None:
        self.batches, self._epochs, self._max_steps = batches, epochs, max_steps
        self._seed, self._plan = seed, plan
        self._known: tuple[int, list[Rows], NDArray[np.int64]] = (-1, [], np.empty(0, np.int64))

    def steps(self, processes: int) -> int:
        """Steps of a run with this number of processes, which take one batch each per step."""
        steps = self.batches // processes * self._epochs
        return min(steps, self._max_steps) if self._max_steps else steps

    def turn(self, step: int, process: int, processes: int) -> Turn:
        """The batch of a step and process."""
        epoch, place = divmod(step, self.batches // processes)
        if self._known[0] != epoch:
            random = np.random.default_rng([self._seed, epoch])
            batches = self._plan(random)
            self._known = (epoch, batches, random.permutation(len(batches)))
        _, batches, order = self._known
        choice = int(order[place * processes + process])
        return Turn(*batches[choice], np.random.default_rng([self._seed, epoch, choice]))


# Larger collections are preprocessed each time, because their texts would not fit into memory.
KEPT_TEXTS = 400_000
Text = TypeVar("Text")


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """B pairs of one collection with N hard negatives each; M = B + B N documents."""

    collection: int  # its number
    queries: NDArray[np.int64]  # int64 [B], numbers in the collection
    # int64 [M]: the pairs' documents, then the negatives of pair 0, of pair 1, …
    documents: NDArray[np.int64]
    # bool [B, M], whether document j is relevant to query i, by judgment or equal text
    relevant: NDArray[np.bool_]
    typos: NDArray[np.int64]  # int64 [B], the seed of each query's typo; 0: it is written as it is


class Preprocessed(Sequence[WeightedTokens], Generic[Text]):
    """Texts as weighted tokens, preprocessed on first access."""

    def __init__(self, texts: Sequence[Text], preprocess: Callable[[Text], WeightedTokens]) -> None:
        self._texts = texts
        self._preprocess = preprocess
        self._kept: dict[int, WeightedTokens] | None = {} if len(texts) <= KEPT_TEXTS else None

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, number: int) -> WeightedTokens: ...
    @overload
    def __getitem__(self, number: slice) -> list[WeightedTokens]: ...
    def __getitem__(self, number: Any) -> Any:
        """The tokens of one text, or of a slice."""
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if self._kept is None:
            return self._preprocess(self._texts[number])
        if number not in self._kept:
            self._kept[int(number)] = self._preprocess(self._texts[number])
        return self._kept[number]


class PairBatches:
    """Draws batches of `batch_size` pairs, with `hard_negatives` drawn each epoch from a query's mined ones.

    If the loss does not compare queries with documents (`compared`), `relevant` holds only the pairs, and texts of a side
    that is not encoded are never preprocessed.
    `topics` is labels of each collection's queries, int64 [queries], which group pairs. None: no labels.
    """

    def __init__(
        self,
        collections: Sequence[Collection],
        preprocessor: Preprocessor,
        batch_size: int,
        seed: int,
        hard_negatives: int = 0,
        compared: bool = True,
        typo_rate: float = 0.0,
        topics: Sequence[NDArray[np.int64]] | None = None,
        epochs: int = 1,
        max_steps: int = 0,
    ) -> None:
        self.compared, self.typo_rate, self.topics = compared, typo_rate, topics
        self._preprocessor = preprocessor
        self.collections = collections
        self.batch_size = batch_size
        self.seed = seed
        self.hard_negatives = hard_negatives
        self.pad_id = preprocessor.pieces.pad_id
        self.queries = [Preprocessed(c.queries, preprocessor.query) for c in collections]
        self.documents = [Preprocessed(c.documents, preprocessor.document) for c in collections]
        self.pairs = [collection.pairs for collection in collections]

        # An incomplete last batch of a collection is left out.
        count = sum(max(len(pairs) // batch_size, 1) for pairs in self.pairs)
        self._epochs = Epochs(count, epochs, max_steps, seed, self._plan)
        self.steps = self._epochs.steps

    def batch(self, step: int, process: int, processes: int) -> PairBatch:
        """A batch of one collection (harder negatives than a mixture), in random order; as `glow.training.run.Data`."""
        collection, pairs, drawn = self._epochs.turn(step, process, processes)
        negatives = self._negatives(collection, pairs, drawn)
        documents = np.concatenate([pairs[:, 1], negatives.reshape(-1)])
        relevant = self._relevant(collection, pairs[:, 0], documents)
        return PairBatch(collection, pairs[:, 0], documents, relevant, self._typos(len(pairs), drawn))

    def _plan(self, random: np.random.Generator) -> list[Rows]:
        batches = []
        for collection, pairs in enumerate(self.pairs):
            order = random.permutation(len(pairs))
            if self.topics is not None:
                order = order[np.argsort(self.topics[collection][pairs[order, 0]], kind="stable")]
            for start in range(0, max(len(order) - self.batch_size + 1, 1), self.batch_size):
                batches.append((collection, pairs[order[start : start + self.batch_size]]))
        return batches

    def queries_of(self, batch: PairBatch) -> list[WeightedTokens]:
        """The queries of a batch, preprocessed, some with a typo."""
        texts, kept = self.collections[batch.collection].queries, self.queries[batch.collection]
        return [
            self._preprocessor.query(misspell_in(texts[number], Random(seed))) if seed else kept[number]  # noqa: S311 - no secret
            for number, seed in zip(batch.queries, batch.typos.tolist(), strict=True)
        ]

    def _typos(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        if not self.typo_rate:
            return np.zeros(count, np.int64)
        return np.where(random.random(count) < self.typo_rate, random.integers(1, 2**31, count), 0)

    def _negatives(
        self, collection: int, pairs: NDArray[np.int64], random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Negatives, int64 [B, N]; a query with fewer repeats its own document, which is blocked as relevant."""
        mined = self.collections[collection].negatives
        drawn = np.repeat(pairs[:, 1:], self.hard_negatives, axis=1)
        if mined is None or not self.hard_negatives:
            return drawn[:, :0]
        for row, query in enumerate(pairs[:, 0]):
            known = mined[query]
            count = min(len(known), self.hard_negatives)
            drawn[row, :count] = random.permutation(np.array(known, np.int64))[:count]
        return drawn

    def _relevant(
        self, collection: int, queries: NDArray[np.int64], documents: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        if not self.compared:
            return np.eye(len(queries), len(documents), dtype=np.bool_)
        judged = self.collections[collection].relevant
        known = np.array([[document in judged[query] for document in documents] for query in queries])
        query_keys = _keys([self.queries[collection][number] for number in queries])
        document_keys = _keys([self.documents[collection][number] for number in documents])
        # A pair's document is also relevant to queries with the same text.
        equal_query = np.zeros_like(known)
        equal_query[:, : len(queries)] = query_keys[:, None] == query_keys[None, :]
        equal_document = document_keys[: len(queries), None] == document_keys[None, :]
        return np.asarray(known | equal_query | equal_document)


def _keys(sequences: Sequence[WeightedTokens]) -> NDArray[np.int64]:
    """Numbers that are equal for texts with equal tokens."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(s.ids.tobytes(), len(numbers)) for s in sequences], np.int64)
