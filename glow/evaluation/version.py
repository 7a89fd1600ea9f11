"""Searches an index version as a service does, to measure it and to compare it with another.

q   queries     k   hits per query  D   dimensions
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams
from glow.search import (
    DEFAULT_CANDIDATES,
    EncodedQuery,
    Reranking,
    analyze_query,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    rerank,
    score_unit,
)

Retriever = Literal["dense", "learned", "hybrid", "rerank"]
"""The retriever `rerank`: the best of the others, with its first hits re-ranked."""

DEPTH = 10
"""Cutoff: the hits that users examine."""
# Below this, scores of two products of the same vectors may differ by rounding.
TIE = 1e-5


class VersionSearch:
    """Queries for one open version, encoded by its own tower; a query without words finds nothing, as in a service."""

    def __init__(self, index: Index, texts: Sequence[str]) -> None:
        self._index = index
        readings = [analyze_query(index, text) for text in texts]
        self._count = len(readings)
        worded = {place: reading for place, reading in enumerate(readings) if reading.tokens.words}
        vectors = index.encoder.encode([reading.tokens for reading in worded.values()])
        self._queries = {
            place: EncodedQuery(reading.text, vector)
            for (place, reading), vector in zip(worded.items(), vectors, strict=True)
        }
        parts: dict[Retriever, bool] = {
            "dense": True,
            "learned": index.holds(LEARNED_SPARSE),
            "hybrid": index.holds(POSTINGS),
            "rerank": index.reranker is not None,
        }
        self.retrievers = tuple(name for name, is_there in parts.items() if is_there)

    def ids(self, retriever: Retriever, k: int = DEPTH) -> list[tuple[str, ...]]:
        """The ids of at most k documents for each query, best first."""
        hits: list[tuple[str, ...]] = [()] * self._count
        for place, query in self._queries.items():
            rows = self._rows(retriever, query, k)
            hits[place] = tuple(document.id for document in self._index[STORED_FIELDS].rows(rows.tolist()))
        return hits

    def _rows(self, retriever: Retriever, query: EncodedQuery, k: int) -> NDArray[np.int64]:
        index, gathered, vector = self._index, max(k, DEFAULT_CANDIDATES), query.vector
        if retriever == "dense":
            return rank_dense(index, vector, k).rows
        if retriever == "learned":
            return rank_lexical(index, query.text, k, by="learned").rows
        if index.holds(POSTINGS):
            ranked = rank_hybrid(index, query, gathered)
        else:
            ranked = rank_dense(index, vector, gathered)
        if retriever == "rerank":
            unit = score_unit(index, "hybrid" if index.holds(POSTINGS) else "dense", None)
            ranked, _ = rerank(index, query.text, ranked, Reranking(), unit, vector)
        return ranked.rows[:k]

    def recall(self, k: int = DEPTH) -> float | None:
        """Fraction of the exact top k that the dense index finds, in [0, 1]; ties count as found.

        None if no query has words.
        """
        dense = self._index[VECTORS]
        if not self._queries:
            return None
        if dense.kind == "flat":
            return 1.0
        vectors = np.stack([query.vector for query in self._queries.values()])
        exact, _ = dense.search(vectors, k, SearchParams(exact=True), order=None)
        scores, _ = dense.search(vectors, k, order=None)
        least = exact[:, -1:] - TIE
        return float((scores >= least).sum() / exact.size) if exact.size else 1.0


def mean_overlap(a: Sequence[tuple[str, ...]], b: Sequence[tuple[str, ...]]) -> float | None:
    """Mean fraction of common hits, in [0, 1], over the queries with hits in either; None if there are none.

    `a` and `b` hold the hits of each query; the fraction is relative to the longer list.
    """
    shares = [
        len(set(one) & set(other)) / max(len(one), len(other))
        for one, other in zip(a, b, strict=True)
        if one or other
    ]
    return float(np.mean(shares)) if shares else None


def sample_texts(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """At most `count` distinct texts in the order of their hashes; blank ones are skipped.

    They are those with the smallest hashes, so the order of the stream does not matter, and memory grows only with
    `count`. Each seed gives another sample.
    """
    sample: dict[str, int] = {}
    heap: list[tuple[int, str]] = []  # the largest hash first
    for text in texts:
        if not text.strip() or text in sample:
            continue
        digest = hashlib.blake2b(f"{seed}\n{text}".encode("utf-8", "replace"), digest_size=8).digest()
        value = int.from_bytes(digest, "big")
        if len(heap) == count:
            if value >= -heap[0][0]:
                continue
            del sample[heapq.heappop(heap)[1]]
        sample[text] = value
        heapq.heappush(heap, (-value, text))
    return sorted(sample, key=sample.__getitem__)
