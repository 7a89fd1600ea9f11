"""First-stage hits of training queries, which a re-ranker learns to order.

c   candidates of a query       B   queries of a batch      N   negatives per query
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.evaluation import read_run
from glow.text import Preprocessor, WeightedTokens
from glow.training.data import Collection, Epochs, Rows

__all__ = ["CandidateBatch", "CandidateBatches", "Candidates", "Texts", "read_candidates"]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """One collection with the first-stage ranking of each query.

    Attributes:
        collection: documents, queries and relevance judgments.
        rows: query number -> int64 [c], documents, best first.
        scores: query number -> float32 [c], first-stage scores.
    """

    collection: Collection
    rows: Sequence[NDArray[np.int64]]
    scores: Sequence[NDArray[np.float32]]


def read_candidates(run: Path, collection: Collection, depth: int) -> Candidates:
    """Reads the first `depth` hits of each query of a collection from a TREC run.

    Raises:
        GlowError: as `glow.evaluation.read_run`.
        MismatchError: if the run holds no query of the collection, or unknown documents.
    """
    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    ranked = read_run(run)
    if not any(identifier in ranked for identifier in collection.query_ids):
        raise MismatchError(
            f"{run.name} holds no query of {collection.name}; make it from that directory and split"
        )
    rows, scores = [], []
    for identifier in collection.query_ids:
        hits = ranked.get(identifier, [])[:depth]
        missing = next((hit.document_id for hit in hits if hit.document_id not in numbers), None)
        if missing is not None:
            raise MismatchError(
                f"{run.name} ranks document {missing!r}, which {collection.name} does not have"
            )
        rows.append(np.array([numbers[hit.document_id] for hit in hits], np.int64))
        scores.append(np.array([hit.score for hit in hits], np.float32))
    return Candidates(collection, rows, scores)


class Texts:
    """A collection's texts for the cross-encoder, each preprocessed once.

    Args:
        collection: documents and queries.
        preprocessor: with the run's schema.
    """

    def __init__(self, collection: Collection, preprocessor: Preprocessor) -> None:
        self._collection, self._preprocessor = collection, preprocessor
        self._queries: dict[int, WeightedTokens] = {}
        self._documents: dict[int, WeightedTokens] = {}

    def query(self, number: int) -> WeightedTokens:
        """A query's tokens."""
        if number not in self._queries:
            self._queries[number] = self._preprocessor.query(self._collection.queries[number])
        return self._queries[number]

    def document(self, number: int) -> WeightedTokens:
        """A document's tokens without [CLS], which belongs to the query."""
        if number not in self._documents:
            self._documents[number] = self._preprocessor.document(
                self._collection.documents[number]
            ).without_first()
        return self._documents[number]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateBatch:
    """B queries of one collection, each with its relevant document and then N others.

    Attributes:
        collection: its number.
        queries: int64 [B].
        documents: int64 [B, 1 + N].
        scores: float32 [B, 1 + N], first-stage scores.
    """

    collection: int
    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    scores: NDArray[np.float32]


class CandidateBatches:
    """Batches of training queries whose candidates include a relevant document and `negatives` others.

    Args:
        candidates: candidates of every collection.
        batch_size: B.
        negatives: N.
        seed: seed of the order, which depends only on it and the epoch, so that a run can resume.
        epochs, max_steps: passes over the queries, and the most steps (0: no limit).

    Raises:
        MismatchError: if no query is usable.
    """

    def __init__(
        self,
        candidates: Sequence[Candidates],
        batch_size: int,
        negatives: int,
        seed: int,
        epochs: int = 1,
        max_steps: int = 0,
    ) -> None:
        self.candidates, self.batch_size, self.negatives = candidates, batch_size, negatives
        self._usable = [self._usable_of(found) for found in candidates]
        if not any(len(usable) for usable in self._usable):
            raise MismatchError(
                f"no query has a relevant document and {negatives} others among its candidates; give runs of the "
                "training split, or search deeper"
            )
        # An incomplete last batch of a collection is left out.
        count = sum(len(usable) // batch_size for usable in self._usable)
        self._epochs = Epochs(count, epochs, max_steps, seed, self._plan)
        self.steps = self._epochs.steps

    def _usable_of(self, found: Candidates) -> NDArray[np.int64]:
        usable = []
        for number, relevant in enumerate(found.collection.relevant):
            held = np.isin(found.rows[number], list(relevant))
            if held.any() and (~held).sum() >= self.negatives:
                usable.append(number)
        return np.array(usable, np.int64)

    def batch(self, step: int, process: int, processes: int) -> CandidateBatch:
        """A batch of one collection, in random order; as `glow.training.run.Data`."""
        place, queries, drawn = self._epochs.turn(step, process, processes)
        picked = [self._pick(self.candidates[place], query, drawn) for query in queries.tolist()]
        rows, scores = (np.stack(each) for each in zip(*picked, strict=True))
        return CandidateBatch(place, queries, rows, scores)

    def _plan(self, random: np.random.Generator) -> list[Rows]:
        batches = []
        for place, usable in enumerate(self._usable):
            order = random.permutation(usable)
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                batches.append((place, order[start : start + self.batch_size]))
        return batches

    def _pick(
        self, found: Candidates, query: int, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """A relevant candidate and N others, drawn uniformly."""
        rows, scores = found.rows[query], found.scores[query]
        held = np.isin(rows, list(found.collection.relevant[query]))
        places = [
            random.choice(np.flatnonzero(held)),
            *random.choice(np.flatnonzero(~held), self.negatives, False),
        ]
        return rows[places], scores[places]
