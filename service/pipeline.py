"""One search, stage by stage: preprocess, encode, search, fetch.

The functions block and are safe to run in many threads; `service/pool.py` keeps them off the event loop.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.errors import QueryError
from glow.records import Document
from glow.search import Index, SearchParams
from glow.text import Preprocessor, WeightedTokens

__all__ = ["FoundDocument", "SearchAnswer", "SearchCall", "StageClock", "Term", "search"]


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


def search(index: Index, call: SearchCall, clock: StageClock) -> SearchAnswer:
    """Answers one request from one index version.

    Args:
        index: used throughout, so that an answer never mixes versions.
        call: the checked request.
        clock: started when the request was queued.

    Raises:
        QueryError: the query holds no word.
    """
    clock.lap("queue")
    tokens = _preprocess(index.preprocessor, call.text)
    terms = _terms(index.preprocessor, tokens)
    clock.lap("preprocess")
    vectors = index.encoder.run([tokens])
    clock.lap("encode")
    scores, rows = _search(index, vectors, call)
    clock.lap("search")
    documents = index.documents.rows(rows) if rows else []
    clock.lap("fetch")
    hits = tuple(FoundDocument(score, found) for score, found in zip(scores, documents, strict=True))
    return SearchAnswer(len(tokens), tokens.truncated, terms, hits, clock.timings_ms)


def _preprocess(preprocessor: Preprocessor, text: str) -> WeightedTokens:
    tokens = preprocessor.query(text)
    if not tokens.words:
        raise QueryError("the query holds no word, only white space or control characters; send some text")
    return tokens


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
    scores, rows = index.dense.search(vectors, call.candidates, call.params)
    page = slice(call.offset, call.offset + call.top_k)
    found = [
        (score, row) for score, row in zip(scores[0, page].tolist(), rows[0, page].tolist(), strict=True)
    ]
    return [score for score, row in found if row >= 0], [row for _, row in found if row >= 0]
