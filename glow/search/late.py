"""Late interaction in hybrid search: compares the tokens of every candidate with those of the query, or of none.

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
from glow.search.dense_scores import rows_read
from glow.text import WeightedTokens

__all__ = ["AnsweredWord", "LateScorer", "QueryTokens", "answered_words", "late_scorer"]

AT_ONCE = 256
"""Number of documents that are compared between two checks of the time."""
Floats = NDArray[np.float32]
LateScorer = Callable[[NDArray[np.int64], Callable[[], bool]], Floats | None]
"""Documents int64 [m] -> float32 [m], about -1 to 1, for each by its best passage. None if time runs out, which the second
argument tells (it is called now and then), or if a store does not return the token vectors."""


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
        """All tokens with equal weights, including [CLS] and [SEP].

        Args:
            tokens: of the query, as the tower's input.
            vectors: float32 [L, P], the tower's embedding of each token.
        """
        return cls(vectors, np.full(len(vectors), 1 / len(vectors), np.float32), tokens)


def late_scorer(
    index: Searchable, query: QueryTokens, vector: Floats, passages: Mapping[int, int]
) -> LateScorer:
    """Returns a function that scores documents by late interaction.

    Args:
        index: with token embeddings.
        query: token embeddings of the query.
        vector: float32 [D], of the query, which selects a document's best passage.
        passages: document row -> row of its best passage, if the first-stage retrieval found it.
    """
    late = index[LATE_INTERACTION]

    def score(documents: NDArray[np.int64], is_over: Callable[[], bool]) -> Floats | None:
        scores = np.empty(len(documents), np.float32)
        rows = rows_read(index, documents, passages, vector)
        for start in range(0, len(rows), AT_ONCE):
            if is_over():
                return None
            here = slice(start, start + AT_ONCE)
            try:
                codes, starts = late.read(rows[here])
            except StoreError:
                return None
            scores[here] = max_sim(codes, starts, query.vectors, query.weights)
        return scores

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
