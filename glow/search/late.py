"""Late interaction in hybrid search: compares the tokens of the first candidates with those of the query.

Source: late interaction of ColBERT (Khattab and Zaharia 2020), over the token embeddings of both towers. It needs no further
encoding and no training of its own. docs/results/quality.md has the measurements.

    q   tokens of a query       P   dimensions of a token embedding      m   documents
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glow.errors import StoreError
from glow.index import Searchable
from glow.index.late_interaction import LATE_INTERACTION, best_tokens, max_sim
from glow.index.passages import PASSAGES, PassageMap
from glow.index.vectors import VECTORS, DenseView
from glow.text import WeightedTokens


def dense_scorer(
    index: Searchable, vector: NDArray[np.float32]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]] | None:
    """Returns a function that computes documents' scores for one query, or None.

    Args:
        index: with the vectors.
        vector: float32 [D], of the query, L2-normalized.

    Returns:
        Documents int64 [m] -> float32 [m] in [-1, 1], of each document's best passage; None if the index cannot return
        full vectors by row.
    """
    dense = index[VECTORS]
    if not dense.has_vectors:
        return None
    if not index.holds(PASSAGES):
        return lambda documents: dense.score(vector, documents)
    passages = index[PASSAGES]

    def score(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if not len(documents):
            return dense.score(vector, documents)
        rows, starts = _rows_of(passages, documents)
        best: NDArray[np.float32] = np.maximum.reduceat(dense.score(vector, rows), starts)
        return best

    return score


def best_passages(
    dense: DenseView,
    passages: PassageMap,
    vector: NDArray[np.float32] | None,
    documents: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The row of each document's best passage for a query, int64 [m]; its first passage if no vectors are available.

    Args:
        dense: the vectors of passages.
        passages: map from passages to documents.
        vector: float32 [D], of the query; None: unknown.
        documents: int64 [m].
    """
    first: NDArray[np.int64] = passages.first[documents].astype(np.int64)
    if vector is None or not dense.has_vectors or not len(documents):
        return first
    rows, starts = _rows_of(passages, documents)
    scores = dense.score(vector, rows)
    ends = [*starts[1:].tolist(), len(rows)]
    found = [
        start + int(scores[start:end].argmax()) for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    best: NDArray[np.int64] = rows[found]
    return best


def rows_read(
    index: Searchable,
    documents: NDArray[np.int64],
    known: Mapping[int, int],
    vector: NDArray[np.float32] | None,
) -> NDArray[np.int64]:
    """The row of each document's vector, or of the vector of its best passage, int64 [m].

    Args:
        index: with the vectors.
        documents: int64 [m].
        known: document row -> row of its best passage, as found by a search.
        vector: as for `best_passages`, for the other documents.
    """
    if not index.holds(PASSAGES):
        return documents.astype(np.int64)
    found = np.array([known.get(row, -1) for row in documents.tolist()], np.int64)
    missing = found < 0
    if missing.any():
        found[missing] = best_passages(index[VECTORS], index[PASSAGES], vector, documents[missing])
    return found


def _rows_of(
    passages: PassageMap, documents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The passages of documents, int64 [p], and where each document's passages begin among them, int64 [m]."""
    first = passages.first[documents].astype(np.int64)
    counts = passages.first[documents + 1].astype(np.int64) - first
    starts = np.cumsum(counts) - counts
    return np.repeat(first - starts, counts) + np.arange(counts.sum()), starts


Floats = NDArray[np.float32]
LateScorer = Callable[[NDArray[np.int64]], Floats | None]
"""Documents int64 [m] -> float32 [m], about -1 to 1, for each by its best passage. None if a store does not return the
token vectors."""


COMPARED_TOKENS = 64
"""Tokens of a query that are compared, the first ones: more cost time and gain nothing (docs/results/serving.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryTokens:
    """Token embeddings of the query, which those of documents are compared with.

    Attributes:
        vectors: float32 [q, P], of norm 1.
        weights: float32 [q], which add up to 1.
        tokens: of the query.
    """

    vectors: Floats
    weights: Floats
    tokens: WeightedTokens

    @classmethod
    def of(cls, tokens: WeightedTokens, vectors: Floats) -> "QueryTokens":
        """The compared tokens with equal weights, including [CLS] and [SEP], others with 0; `vectors` are float32 [L, P]."""
        compared = min(len(vectors), COMPARED_TOKENS)
        weights = np.where(np.arange(len(vectors)) < compared, np.float32(1 / compared), np.float32(0.0))
        return cls(vectors, weights, tokens)


def late_scorer(
    index: Searchable, query: QueryTokens, vector: Floats, passages: Mapping[int, int]
) -> LateScorer:
    """Returns a function that scores documents by late interaction.

    The query's `vector` [D] selects a document's best passage, unless `passages` (row -> row of it) has that.
    """
    late = index[LATE_INTERACTION]

    def score(documents: NDArray[np.int64]) -> Floats | None:
        rows = rows_read(index, documents, passages, vector)
        try:
            codes, starts = late.read(rows)
        except StoreError:
            return None
        return max_sim(codes, starts, query.vectors[:COMPARED_TOKENS], query.weights[:COMPARED_TOKENS])

    return score


@dataclass(frozen=True, slots=True)
class AnsweredWord:
    """A word of the query, and the word of a document that matches it best.

    Attributes:
        word, answer: as preprocessing yields them.
        similarity: about -1 to 1, of the most similar subword tokens of the two words.
        weight: of the word's tokens in the score, in [0, 1].
    """

    word: str
    answer: str
    similarity: float
    weight: float


def answered_words(
    index: Searchable, query: QueryTokens, row: int, document: WeightedTokens
) -> tuple[AnsweredWord, ...]:
    """The best match in a document of each query word, in the query's order.

    Args:
        index: with token embeddings.
        query: token embeddings of the query.
        row: of the document's vector, or of its passage's.
        document: the tokens of the same text, as when it was stored.
    """
    late, tokens = index[LATE_INTERACTION], query.tokens
    codes, _ = late.read(np.array([row]))
    found = best_tokens(codes, late.places(row), query.vectors)
    numbers = tokens.word_ids.tolist()
    told: dict[int, AnsweredWord] = {}
    answers = zip(numbers, *(each.tolist() for each in (*found, query.weights)), strict=True)
    for number, place, similarity, weight in answers:
        word = int(document.word_ids[place]) if place < len(document) else -1
        if number < 0 or word < 0:
            continue
        made = AnsweredWord(tokens.words[number], document.words[word], similarity, weight)
        known = told.get(number, made)
        if known is not made:  # a word of several subword tokens: the best of their matches counts
            best = max(known, made, key=lambda each: each.similarity)
            made = replace(best, weight=known.weight + weight)
        told[number] = made
    return tuple(told.values())
