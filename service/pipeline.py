"""One search, stage by stage: preprocess, encode, search, fetch.

The functions block and are safe to run in many threads; `service/batcher.py` keeps all but the first stage, which takes
some microseconds, off the event loop.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.errors import QueryError
from glow.records import Document
from glow.search import Index, SearchParams
from glow.text import Preprocessor, WeightedTokens

__all__ = [
    "FoundDocument",
    "SearchAnswer",
    "SearchCall",
    "StageClock",
    "Term",
    "preprocess",
    "retrieve",
    "search",
]


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A checked request.

    Attributes:
        text: the query.
        top_k: hits to return, >= 1.
        offset: hits to pass over first, >= 0.
        candidates: hits that the search gathers, >= offset + top_k.
        params: how thoroughly to search.
    """

    text: str
    top_k: int
    offset: int
    candidates: int
    params: SearchParams


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the query: its idf, and the weight that the query tower read; both finite, >= 0."""

    word: str
    idf: float
    weight: float


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A hit with what the store holds of it; `score` is the cosine, in [-1, 1]."""

    score: float
    document: Document


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What one search found.

    Attributes:
        tokens: tokens that the tower read, [CLS] and [SEP] counted.
        truncated: whether words were lost to the query budget.
        terms: the different words that the tower read, in order.
        hits: best first, from `offset` on.
        timings_ms: stage -> milliseconds.
    """

    tokens: int
    truncated: bool
    terms: tuple[Term, ...]
    hits: tuple[FoundDocument, ...]
    timings_ms: dict[str, float]


class StageClock:
    """Measures stages that follow one another; starts when it is made."""

    def __init__(self) -> None:
        self.timings_ms: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage."""
        now = time.perf_counter()
        self.timings_ms[stage] = (now - self._last) * 1_000
        self._last = now

    def set(self, **timings_ms: float) -> None:
        """Notes stages that were measured elsewhere, up to now."""
        self.timings_ms.update(timings_ms)
        self._last = time.perf_counter()


def preprocess(preprocessor: Preprocessor, text: str) -> WeightedTokens:
    """The query tower's input.

    Raises:
        QueryError: the query holds no word.
    """
    tokens = preprocessor.query(text)
    if not tokens.words:
        raise QueryError("the query holds no word, only white space or control characters; send some text")
    return tokens


def search(index: Index, call: SearchCall) -> SearchAnswer:
    """Answers one request from one index version, alone, from text to documents.

    Args:
        index: used throughout, so that an answer never mixes versions.
        call: the checked request.

    Raises:
        QueryError: the query holds no word.
    """
    clock = StageClock()
    tokens = preprocess(index.preprocessor, call.text)
    clock.lap("preprocess")
    vector = index.encoder.run([tokens])[0]
    clock.lap("encode")
    return retrieve(index, call, tokens, vector, clock)


def retrieve(
    index: Index,
    call: SearchCall,
    tokens: WeightedTokens,
    vector: NDArray[np.float32],
    clock: StageClock,
) -> SearchAnswer:
    """What follows encoding: searches and fetches.

    Args:
        index: whose tower made the vector.
        call: the checked request.
        tokens: the query as the tower read it.
        vector: float32 [D], L2-normalised.
        clock: its last lap ended with encoding; its stages go into the answer.
    """
    scores, rows = _search(index, vector[None], call)
    clock.lap("search")
    documents = index.documents.rows(rows) if rows else []
    clock.lap("fetch")
    hits = tuple(FoundDocument(score, found) for score, found in zip(scores, documents, strict=True))
    terms = _terms(index.preprocessor, tokens)
    return SearchAnswer(len(tokens), tokens.truncated, terms, hits, clock.timings_ms)


def _terms(preprocessor: Preprocessor, tokens: WeightedTokens) -> tuple[Term, ...]:
    """Each different word once; all its pieces, wherever it occurs, carry the same weight."""
    weights = {
        tokens.words[word]: weight
        for word, weight in zip(tokens.word_ids.tolist(), tokens.weights.tolist(), strict=True)
        if word >= 0
    }
    return tuple(Term(word, preprocessor.weigher.idf(word), weight) for word, weight in weights.items())


def _search(index: Index, vectors: NDArray[np.float32], call: SearchCall) -> tuple[list[float], list[int]]:
    """Scores and rows of the page that was asked for; an approximate search may find fewer."""
    # What an exact search finds first does not depend on how much more it was asked for.
    needed = call.offset + call.top_k if index.dense.kind == "flat" or call.params.exact else call.candidates
    scores, rows = index.dense.search(vectors, needed, call.params)
    page = slice(call.offset, call.offset + call.top_k)
    found = [
        (score, row) for score, row in zip(scores[0, page].tolist(), rows[0, page].tolist(), strict=True)
    ]
    return [score for score, row in found if row >= 0], [row for _, row in found if row >= 0]
