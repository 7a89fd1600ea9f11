"""Pairs of queries and documents, preprocessed on demand; each batch comes from one data directory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from glow.text import Preprocessor, WeightedTokens, misspell_in
from glow.training.data.dataset import Collection
from glow.training.data.epochs import Epochs, Rows

__all__ = ["PairBatch", "PairBatches", "Preprocessed"]

# Larger collections are preprocessed each time, because their texts would not fit into memory.
KEPT_TEXTS = 400_000
Text = TypeVar("Text")


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """B pairs of one collection with N hard negatives each; M = B + B N documents.

    Attributes:
        collection: its number.
        queries: int64 [B], numbers in the collection.
        documents: int64 [M]: the pairs' documents, then the negatives of pair 0, of pair 1, …
        relevant: bool [B, M], whether document j is relevant to query i, by judgment or equal text.
        typos: int64 [B], the seed of each query's typo; 0: it is written as it is.
    """

    collection: int
    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    relevant: NDArray[np.bool_]
    typos: NDArray[np.int64]


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
    """Draws batches of pairs from preprocessed collections.

    Args:
        collections: the training data.
        preprocessor: for queries and documents.
        batch_size: B.
        seed: seed of the order. An epoch's order depends only on it and the epoch, so a run can resume.
        hard_negatives: N, drawn each epoch from a query's mined ones.
        compared: whether the loss compares queries with documents. Otherwise `relevant` holds only the pairs, and
            texts of a side that is not encoded are never preprocessed.
        typo_rate: fraction of the queries that get a typo.
        topics: labels of each collection's queries, int64 [queries], which group pairs. None: no labels.
        epochs, max_steps: passes over the pairs, and the most steps (0: no limit).
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
