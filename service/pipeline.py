"""One search, stage by stage: preprocess, encode, filter, search, fetch, and what was asked for beside.

The functions block and are safe to run in many threads; `service/batcher.py` keeps all but the first stage, which takes
some microseconds, off the event loop.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.errors import QueryError
from glow.records import Document
from glow.search import FoundPassage, Fusion, Index, SearchParams
from glow.search.facets import FacetCounts, FacetRequest, count_values
from glow.search.filter_terms import Expression
from glow.search.retrievers import Ranked, Retriever, rank_dense, rank_hybrid, rank_lexical
from glow.search.row_mask import RowMask
from glow.text import Preprocessor, WeightedTokens
from glow.text.highlight import Highlighting
from service.errors import DeadlineError
from service.explain.reasons import Reasons, explain
from service.hit_details import highlight_hits, passage_document

__all__ = [
    "ExplainCall",
    "FoundDocument",
    "HighlightCall",
    "SearchAnswer",
    "SearchCall",
    "StageClock",
    "Term",
    "preprocess",
    "retrieve",
    "search",
]


@dataclass(frozen=True, slots=True)
class HighlightCall:
    """Which fields to cut snippets from, and how much."""

    fields: tuple[str, ...]
    options: Highlighting


@dataclass(frozen=True, slots=True)
class ExplainCall:
    """What to explain: words always, leaving out each word where asked."""

    leave_one_out: bool


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A checked request.

    Attributes:
        text: the query.
        top_k: hits to return, >= 1.
        offset: hits to pass over first, >= 0.
        candidates: hits that the search gathers, >= offset + top_k.
        params: how thoroughly to search.
        retriever: by vectors, words, or both; the latter two need `index.impacts`.
        fusion: how `hybrid` makes one ranking of two.
        filter: which documents may be found; None: all. Needs `index.columns`, as facets do.
        facets: what to count over the candidates.
        highlight, explain: what to say of each hit; None for nothing. The latter needs `index.explainer`.
    """

    text: str
    top_k: int
    offset: int
    candidates: int
    params: SearchParams
    retriever: Retriever = "dense"
    fusion: Fusion | None = None
    filter: Expression | None = None
    facets: tuple[FacetRequest, ...] = ()
    highlight: HighlightCall | None = None
    explain: ExplainCall | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the query: its idf, and the weight that the query tower read; both finite, >= 0."""

    word: str
    idf: float
    weight: float


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A hit with what the store holds of it.

    Attributes:
        score: what ranks.
        row: of the document in the index.
        parts: `dense` (cosine, in [-1, 1]) or `lexical` (>= 0) -> that part's score, where it is known.
        document: as stored.
        passage: its best passage, where the index has passages and vectors found it.
    """

    score: float
    row: int
    parts: Mapping[str, float]
    document: Document
    passage: FoundPassage | None = None


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What one search found.

    Attributes:
        tokens: tokens that the tower read, [CLS] and [SEP] counted.
        truncated: whether words were lost to the query budget.
        terms: the different words that the tower read, in order.
        hits: best first, from `offset` on.
        timings_ms: stage -> milliseconds.
        facets: field -> counts.
        highlights: of each hit, field -> snippets as HTML; empty where not asked for.
        reasons: why each hit was found; None where not asked for.
    """

    tokens: int
    truncated: bool
    terms: tuple[Term, ...]
    hits: tuple[FoundDocument, ...]
    timings_ms: dict[str, float]
    facets: Mapping[str, FacetCounts]
    highlights: tuple[Mapping[str, list[str]], ...] = ()
    reasons: Reasons | None = None


class StageClock:
    """Measures stages that follow one another, and ends a search whose time is over; starts when it is made.

    A thread cannot be stopped from outside: without this it would work on for a client that has its 504 already, while
    admission, which counts requests, lets the next one in.

    Args:
        deadline: `time.perf_counter()` after which nobody wants the answer.

    Attributes:
        gone: whether the client has left.
    """

    def __init__(self, deadline: float = math.inf) -> None:
        self.timings_ms: dict[str, float] = {}
        self.gone: Callable[[], bool] = lambda: False
        self._deadline = deadline
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage.

        Raises:
            DeadlineError: the deadline has passed, or the client has left.
        """
        now = time.perf_counter()
        self.timings_ms[stage] = (now - self._last) * 1_000
        self._last = now
        self.check()

    def check(self) -> None:
        """Raises DeadlineError where the deadline has passed or the client has left; for long stages."""
        if self.gone() or time.perf_counter() >= self._deadline:
            raise DeadlineError("the deadline passed before the answer was made; ask for a later one")

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
    vector = None
    if call.retriever != "lexical":
        vector = index.encoder.run([tokens])[0]
        clock.lap("encode")
    return retrieve(index, call, tokens, vector, clock)


def retrieve(
    index: Index,
    call: SearchCall,
    tokens: WeightedTokens,
    vector: NDArray[np.float32] | None,
    clock: StageClock,
) -> SearchAnswer:
    """What follows encoding: filters, searches, fetches, and says more of the hits where asked.

    Args:
        index: whose tower made the vector.
        call: the checked request.
        tokens: the query as the tower read it.
        vector: float32 [D], L2-normalised; None for a lexical search, which needs none.
        clock: its last lap ended with encoding; its stages go into the answer.

    Raises:
        DeadlineError: the clock's deadline passed; looked for after each stage, and while hits are explained.
    """
    allowed = _allowed(index, call, clock)
    ranked = _rank(index, call, vector, allowed)
    clock.lap("search")
    facets = _count(index, call, ranked.rows, allowed, clock)
    hits = _fetch(index, call, ranked)
    clock.lap("fetch")
    shown = [passage_document(hit.document, hit.passage) for hit in hits] if call.explain else []
    reasons = None
    if call.explain is not None:
        reasons = explain(index, call.text, shown, call.explain.leave_one_out, clock.check)
        clock.lap("explain")
    highlights: tuple[Mapping[str, list[str]], ...] = ()
    if call.highlight is not None:
        documents = [hit.document for hit in hits]
        wanted = call.highlight
        fields, options = wanted.fields, wanted.options
        highlights = highlight_hits(index, call.text, documents, fields, options, reasons, clock.check)
        clock.lap("highlight")
    terms = _terms(index.preprocessor, tokens)
    return SearchAnswer(
        len(tokens), tokens.truncated, terms, hits, clock.timings_ms, facets, highlights, reasons
    )


def _terms(preprocessor: Preprocessor, tokens: WeightedTokens) -> tuple[Term, ...]:
    """Each different word once; all its pieces, wherever it occurs, carry the same weight."""
    weights = {
        tokens.words[word]: weight
        for word, weight in zip(tokens.word_ids.tolist(), tokens.weights.tolist(), strict=True)
        if word >= 0
    }
    return tuple(Term(word, preprocessor.weigher.idf(word), weight) for word, weight in weights.items())


def _allowed(index: Index, call: SearchCall, clock: StageClock) -> RowMask | None:
    if call.filter is None or index.masks is None:
        return None
    allowed = index.masks.mask(call.filter, clock.check)
    clock.lap("filter")
    return allowed


def _rank(
    index: Index, call: SearchCall, vector: NDArray[np.float32] | None, allowed: RowMask | None
) -> Ranked:
    """The candidates, or as many of them as the page needs; an approximate search may find fewer."""
    if vector is None:
        return rank_lexical(index, call.text, call.candidates, allowed)
    if call.retriever == "hybrid":
        return rank_hybrid(index, call.text, vector, call.candidates, call.params, call.fusion, allowed)
    # What an exact search finds first does not depend on how much more it was asked for.
    is_exact = index.dense.kind == "flat" or call.params.exact
    needed = call.offset + call.top_k if is_exact and not call.facets else call.candidates
    return rank_dense(index, vector, needed, call.params, allowed)


def _count(
    index: Index,
    call: SearchCall,
    rows: NDArray[np.int64],
    allowed: RowMask | None,
    clock: StageClock,
) -> dict[str, FacetCounts]:
    """Values over the candidates; approximate where there may be more documents than these."""
    if not call.facets or index.columns is None:
        return {}
    most = index.documents.count if allowed is None else allowed.count
    if call.retriever == "lexical" and len(rows) < call.candidates:
        most = len(rows)  # no other document shares a word with the query
    counts = {
        facet.field: count_values(index.columns, facet.field, rows, facet.limit, most)
        for facet in call.facets
    }
    clock.lap("facets")
    return counts


def _fetch(index: Index, call: SearchCall, ranked: Ranked) -> tuple[FoundDocument, ...]:
    page = slice(call.offset, call.offset + call.top_k)
    rows, scores = ranked.rows[page].tolist(), ranked.scores[page].tolist()
    parts = {name: values[page].tolist() for name, values in ranked.parts.items()}
    documents = index.documents.rows(rows) if rows else []
    hits = []
    for place, (row, score, document) in enumerate(zip(rows, scores, documents, strict=True)):
        # NaN, the one number that is not itself, stands for a score that is not known.
        known = {name: values[place] for name, values in parts.items() if values[place] == values[place]}
        passage = None
        if index.passages is not None and row in ranked.passages:
            passage = index.passages.passage_of(document, ranked.passages[row])
        hits.append(FoundDocument(score, row, known, document, passage))
    return tuple(hits)
