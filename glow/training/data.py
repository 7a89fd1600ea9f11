"""The inputs of a run: files and directories, judged collections, hashes, and batches by step."""

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import read_manifest
from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import ConfigError, GlowError, InputError
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
from glow.training.run import TrainingDevice, parts_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Files and directories; each kind of run reads some of them and refuses the others."""

    out: Path  # the checkpoint directory to write; state and metrics go to `OUT.run/` beside it.
    init: Path  # initial weights and vocabulary: a BERT directory, a checkpoint, or a model; for learned impacts, the model to extend
    data: Sequence[Path] = ()  # data directories
    split: str = "train"  # split of their relevance judgments
    # text for pre-training: JSON Lines of documents (`.jsonl`, `.ndjson`), or plain text.
    corpora: Sequence[Path] = ()
    # TREC runs of first-stage retrieval, one for each data directory, in the same order
    candidates: Sequence[Path] = ()
    # the teacher: a BERT directory, a model or a checkpoint
    teacher: Path | None = None
    # files of mined hard negatives; each names the directory it was mined from
    negatives: Sequence[Path] = ()
    # development data: data directories with a split `dev`, or corpora for pre-training
    dev: Sequence[Path] = ()
    dev_candidates: Sequence[Path] = ()  # TREC runs over them, in the same order
    cache: Path | None = None  # directory of teachers' vectors; None: `teacher.vectors` beside `out`.
    device: TrainingDevice = "auto"  # `auto`, `cpu` or `cuda`

    @property
    def run_folder(self) -> Path:
        """Directory of the run's state."""
        return self.out.with_name(self.out.name + ".run")

    @property
    def vectors_folder(self) -> Path:
        """Directory of teachers' vectors, shared by neighboring runs."""
        return self.cache or self.out.parent / "teacher.vectors"

    def check_folders(self) -> None:
        """Raises ConfigError if `init` is not a directory, or `out` exists and is not a checkpoint."""
        if not self.init.is_dir():
            raise ConfigError(
                f"--init {self.init} is not a directory; give a BERT directory, a checkpoint or a model"
            )
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return
        try:
            read_manifest(self.out, "checkpoint")
        except GlowError as error:
            raise ConfigError(
                f"--out {self.out} exists and is not a checkpoint; choose another directory"
            ) from error

    def refuse(self, what: str, *names: str) -> None:
        """Raises ConfigError for inputs that a kind does not read."""
        if found := [name for name in names if getattr(self, name)]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in found)
            raise ConfigError(f"{what} does not read {flags}; leave it out")

    def require_candidates(self, what: str) -> None:
        """Raises ConfigError unless there is one run of candidates for each directory."""
        for flag, folders, runs in (
            ("", self.data, self.candidates),
            ("dev-", self.dev, self.dev_candidates),
        ):
            if len(folders) != len(runs) or not self.data:
                raise ConfigError(
                    f"{what} from first-stage hits: found {len(folders)} --{flag.rstrip('-') or 'data'} and {len(runs)} "
                    f"--{flag}candidates, expected one TREC run for each directory (glow evaluate --run)"
                )


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


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """A data directory's documents and the queries of one split, with their relevance judgments."""

    name: str  # the directory's name
    # documents, queries: texts; their positions are the numbers used elsewhere.
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

    def about(self, split: str) -> dict[str, Any]:
        """Its description in a report."""
        counts = {"documents": len(self.documents), "queries": len(self.queries)}
        return {"name": self.name, "split": split, **counts}


def read_collection(folder: Path, split: str, schema: FieldSchema) -> Collection:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` of a directory."""
    documents = list(read_documents(folder / "corpus.jsonl", schema.names))
    numbers = {document.id: number for number, document in enumerate(documents)}
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
    # Numbers are hashed, because two readings of the same files are two objects.
    negatives = json.dumps([*map(list, collection.negatives)]) if collection.negatives is not None else ""
    pairs = hashlib.sha256(collection.pairs.tobytes()).hexdigest()
    return parts_hash(
        [documents_hash(collection.documents), json.dumps(list(collection.queries)), pairs, negatives]
    )


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


class Preprocessed(Generic[Text]):
    """Texts as weighted tokens, preprocessed on first access."""

    def __init__(self, texts: Sequence[Text], preprocess: Callable[[Text], WeightedTokens]) -> None:
        self._texts, self._preprocess = texts, preprocess
        self._kept: dict[int, WeightedTokens] = {}

    def __getitem__(self, number: int) -> WeightedTokens:
        tokens = self._kept.get(number)
        if tokens is None:
            tokens = self._preprocess(self._texts[number])
            if len(self._texts) <= KEPT_TEXTS:
                self._kept[int(number)] = tokens
        return tokens


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
        typos = np.zeros(len(pairs), np.int64)
        if self.typo_rate:
            typos = np.where(
                drawn.random(len(pairs)) < self.typo_rate, drawn.integers(1, 2**31, len(pairs)), 0
            )
        return PairBatch(collection, pairs[:, 0], documents, relevant, typos)

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
