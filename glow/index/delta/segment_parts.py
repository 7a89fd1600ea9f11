"""Vectors, documents, words and term representations of a base and a delta, each asked as one part (`glow.index.segments`)."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from glow.index.learned_sparse import Expansion, LearnedImpacts
from glow.index.milvus import MilvusVectors
from glow.index.postings import ImpactIndex
from glow.index.ranking import Ranking, best
from glow.index.row_mask import RowMask
from glow.index.segments import Segments
from glow.index.stored_fields import DocumentStore, not_found
from glow.index.token_embeddings import StatesHeader, TermStates
from glow.index.vectors import DenseIndex, IndexKind, SearchParams
from glow.records import Document

__all__ = ["SegmentedDense", "SegmentedDocuments", "SegmentedImpacts", "SegmentedLearned", "SegmentedStates"]


class SegmentedDense:
    """Vectors of both: the base searched as its kind is, the delta exactly. Arguments as for `DenseIndex`.

    Args:
        base, delta: the parts; the delta is `flat`.
        segments: of vectors.
    """

    def __init__(self, base: DenseIndex | MilvusVectors, delta: DenseIndex, segments: Segments) -> None:
        self.base = base
        self.delta = delta
        self.segments = segments
        self.kind: IndexKind = base.kind
        self.device = base.device
        self.dimensions = base.dimensions

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def has_vectors(self) -> bool:
        """Whether whole vectors can be read by row."""
        return self.base.has_vectors and self.delta.has_vectors

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Finds the k nearest vectors of each query in both; what is gone is not found."""
        base, delta = self.segments.split(allowed)
        later = None if order is None else order[self.segments.base :]
        near_scores, near_rows = self.base.search(vectors, k, params, base, order)
        new_scores, new_rows = self.delta.search(vectors, k, None, delta, later)
        scores = np.concatenate([near_scores, new_scores], axis=1)
        rows = np.concatenate([near_rows, new_rows + self.segments.base], axis=1)
        # Row -1, which fills up, has the score -inf: it stands last whatever its rank is.
        places = np.lexsort((rows if order is None else order[rows], -scores), axis=-1)[:, :k]
        return np.take_along_axis(scores, places, -1), np.take_along_axis(rows, places, -1)

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows."""
        scores = np.empty(len(rows), np.float32)
        is_new = rows >= self.segments.base
        scores[~is_new] = self.base.score(vector, rows[~is_new])
        scores[is_new] = self.delta.score(vector, rows[is_new] - self.segments.base)
        return scores

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows, float32 [m, D]."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        is_new = rows >= self.segments.base
        vectors[~is_new] = self.base.vectors(rows[~is_new])
        vectors[is_new] = self.delta.vectors(rows[is_new] - self.segments.base)
        return vectors


class SegmentedDocuments:
    """Documents of both: those of the delta stand for those of the base with the same id.

    Args:
        base, delta: the stores.
        segments: of documents.

    Attributes:
        count: documents that can be found; rows go beyond it where some are gone.
    """

    def __init__(self, base: DocumentStore, delta: DocumentStore, segments: Segments) -> None:
        self._base = base
        self._delta = delta
        self._segments = segments
        self.count = segments.count

    def find(self, document_id: str) -> int | None:
        """The row of an id; None where there is none, or it is gone."""
        row = self._delta.find(document_id)
        if row is not None:
            return row + self._segments.base
        row = self._base.find(document_id)
        return None if row is None or self._segments.is_gone(row) else row

    def get(self, document_id: str) -> Document:
        """The document of an id.

        Raises:
            DocumentNotFoundError: if there is none, or it is gone.
        """
        row = self.find(document_id)
        if row is None:
            raise not_found(document_id)
        return self.rows([row])[0]

    def rows(self, rows: Sequence[int]) -> list[Document]:
        """The documents of rows, in the order asked for; every row must exist, and may be gone."""
        first = self._segments.base
        old = iter(self._base.rows([row for row in rows if row < first]))
        new = iter(self._delta.rows([row - first for row in rows if row >= first]))
        return [next(old if row < first else new) for row in rows]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """As `rows`, but the ids alone."""
        first = self._segments.base
        old = iter(self._base.ids([row for row in rows if row < first]))
        new = iter(self._delta.ids([row - first for row in rows if row >= first]))
        return [next(old if row < first else new) for row in rows]

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the documents of rows `start` to `stop` (not included; None: to the end) that are not gone."""
        first = self._segments.base
        stop = len(self._segments) if stop is None else stop
        for row, document in enumerate(self._base.scan(start, min(stop, first)), start):
            if not self._segments.is_gone(row):
                yield document
        yield from self._delta.scan(max(start - first, 0), stop - first)

    def by_id(self) -> Iterator[tuple[str, int, str, str]]:
        """As `DocumentStore.by_id`, without what is gone."""
        first = self._segments.base
        old = (entry for entry in self._base.by_id() if not self._segments.is_gone(entry[1]))
        new = ((name, row + first, fields, rest) for name, row, fields, rest in self._delta.by_id())
        return heapq.merge(old, new, key=itemgetter(0))


Words = ImpactIndex | LearnedImpacts


class SegmentedImpacts:
    """Words of both. Impacts of the delta are made with the base's idf and average length, so they compare.

    Args:
        base, delta: the lexical indexes, or those with learned impacts.
        segments: of documents.
    """

    def __init__(self, base: Words, delta: Words, segments: Segments) -> None:
        self._base = base
        self._delta = delta
        self._segments = segments
        # Of what is left: a rebuild would not know the impacts that are gone.
        self.largest = max(base.largest_of(segments.alive), delta.largest)
        self.analyzer = base.analyzer

    def __len__(self) -> int:
        return len(self._segments)

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k documents with the highest scores in both; arguments as for `ImpactIndex`."""
        base, delta = self._segments.split(allowed)
        later = None if order is None else order[self._segments.base :]
        old_scores, old_rows = self._base.search(words, k, base, order)
        new_scores, new_rows = self._delta.search(words, k, delta, later)
        scores = np.concatenate([old_scores, new_scores])
        return best(scores, np.concatenate([old_rows, new_rows + self._segments.base]), k, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of some documents, to the bit those of `search`."""
        scores = np.empty(len(rows), np.float32)
        is_new = rows >= self._segments.base
        scores[~is_new] = self._base.score(words, rows[~is_new])
        scores[is_new] = self._delta.score(words, rows[is_new] - self._segments.base)
        return scores

    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]:
        """What each word of a query adds to one document's score: word -> impact, 0 where the document lacks it."""
        at = np.array([row], np.int64)
        return {word: float(self.score([word] * count, at)[0]) for word, count in Counter(words).items()}

    def holds(self, word: str) -> bool:
        """Whether a document of either holds a word, or another of its term; one that is gone counts until the next build."""
        return self._base.holds(word) or self._delta.holds(word)

    def bound(self, words: Sequence[str]) -> float:
        """What no document's score exceeds."""
        return max(self._base.bound(words), self._delta.bound(words))


class SegmentedLearned(SegmentedImpacts):
    """Learned impacts of both, with BM25's."""

    def __init__(self, base: LearnedImpacts, delta: LearnedImpacts, segments: Segments) -> None:
        super().__init__(base, delta, segments)
        self._parts = base, delta
        self._documents = segments
        self.weight = base.weight

    def with_weight(self, weight: float) -> "SegmentedLearned":
        """The same impacts under another weight."""
        base, delta = (part.with_weight(weight) for part in self._parts)
        return SegmentedLearned(base, delta, self._documents)

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each word of a query adds to one document's score, by where it comes from."""
        base, delta = self._parts
        first = self._segments.base
        return base.expansions(words, row) if row < first else delta.expansions(words, row - first)


class SegmentedStates:
    """Term representations of both, made by one re-ranker in one precision; arguments as for `TermStates`.

    Args:
        base, delta: the stores.
    """

    def __init__(self, base: TermStates, delta: TermStates) -> None:
        self._parts = ((base, 0), (delta, len(base)))
        self.header: StatesHeader = base.header

    def __len__(self) -> int:
        return sum(len(part) for part, _ in self._parts)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of documents, int64 [B]."""
        lengths = np.empty(len(rows), np.int64)
        for part, here in self._split(rows):
            lengths[here] = part[0].lengths(rows[here] - part[1])
        return lengths

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """States and mask of documents, padded at the end."""
        lengths = self.lengths(rows)
        mask = (np.arange(int(lengths.max())) < lengths[:, None]).astype(np.int64)
        states = np.zeros((*mask.shape, self.header.size), np.float32)
        for part, here in self._split(rows):
            found, _ = part[0].read(rows[here] - part[1])
            states[here, : found.shape[1]] = found
        return states, mask

    def _split(self, rows: NDArray[np.int64]) -> list[tuple[tuple[TermStates, int], NDArray[np.int64]]]:
        """Each segment that some rows are of, and their places."""
        is_new = rows >= self._parts[1][1]
        places = (np.flatnonzero(~is_new), np.flatnonzero(is_new))
        return [(part, here) for part, here in zip(self._parts, places, strict=True) if len(here)]
