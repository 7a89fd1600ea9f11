"""One search, stage by stage: preprocess, encode, filter, search, fetch, and what was asked for beside.

The functions block and are safe to run in many threads; `service/batcher.py` keeps all but the first stage, which takes
some microseconds, off the event loop.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glow.errors import QueryError
from glow.search import Index
from glow.search.facets import FacetCounts, count_values
from glow.search.retrievers import Ranked, rank_dense, rank_hybrid, rank_lexical
from glow.search.row_mask import RowMask
from glow.text import Preprocessor, WeightedTokens
from service.calls import FoundDocument, SearchAnswer, SearchCall, Term
from service.explain.reasons import explain
from service.hit_details import highlight_hits, passage_document
from service.stage_clock import StageClock

__all__ = ["preprocess", "retrieve", "search"]


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
