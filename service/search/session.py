"""One search, stage by stage: preprocess, encode, filter, search, re-rank, fetch, explain, highlight.

The functions block and may run in many threads. `service/search/work_pool.py` keeps all stages off the event loop, except
the first one, which takes microseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from glow.contract import Correction, FoundHits, Hit, Query, QueryExplanation
from glow.errors import QueryError
from glow.index import Index, RowMask, wanted_until
from glow.index.columns import COLUMNS
from glow.index.columns.filters import Expression
from glow.index.columns.masks import FacetCounts, count_values
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.records import Document
from glow.runtime import EncodedText
from glow.search import (
    Confidence,
    EncodedQuery,
    Meaning,
    QueryTokens,
    RankedDocuments,
    Reranking,
    Words,
    analyze_query,
    arrange,
    attended_words,
    can_tell,
    fuse_hybrid,
    gather_hybrid,
    rank_dense,
    rank_lexical,
    reads_head,
    rerank,
    score_unit,
    unknown_words,
)
from glow.text import Preprocessor, WeightedTokens
from glow_service.search.calls import RankedHit, SearchAnswer, SearchCall
from glow_service.search.clock import NEVER, Deadline, StageClock
from glow_service.search.explanations import Explanations, answers_of, explain
from glow_service.search.hits import (
    AnswerSize,
    PageReader,
    documents_of,
    page_of,
    passage_document,
    rows_of,
)
from glow_service.search.render import HitMaker, facet_of, index_name, query_terms, read_words
from glow_service.search.sources import rank_without_text

Vector = NDArray[np.float32]

RERANK_RESERVE_S = 0.005
"""Time reserved after re-ranking for reading the page's documents and making the response, in seconds."""


def query_tokens(preprocessor: Preprocessor, text: str) -> WeightedTokens:
    """The query encoder's input."""
    tokens = preprocessor.query(text)
    require_words(tokens)
    return tokens


def require_words(tokens: WeightedTokens) -> None:
    """Raises an error for a query without words."""
    if not tokens.words:
        raise QueryError("the query has no word, only white space or control characters; send some text")


class SearchSession:
    """The state of one search of one index version.

    Routes run the stages separately, because batches encode queries and caches keep vectors; other callers use
    `run`. The methods block, and only one thread at a time may call them.
    """

    __slots__ = (
        "_confidence", "_explanations", "_facets", "_query", "_reader", "call", "clock", "corrected", "deadline", "index", "left_out",
        "ranked", "reads_first", "text", "tokens",
    )  # fmt: skip

    def __init__(self, index: Index, call: SearchCall, deadline: Deadline = NEVER) -> None:
        self.index = index
        self.call = call
        self.deadline = deadline
        self.clock = StageClock(deadline)
        self.tokens: WeightedTokens | None = None
        self.text = call.text
        self.corrected: Mapping[str, str] = {}
        self.ranked: RankedDocuments | None = None
        self.left_out: tuple[str, ...] = ()
        self.reads_first: int | None = None
        self._query: EncodedQuery | None = None
        self._facets: dict[str, FacetCounts] = {}
        self._explanations: Explanations | None = None
        self._reader: PageReader | None = None
        self._confidence: Confidence | None = None

    @property
    def reading_price(self) -> int:
        """Cost of its hits so far, in addition to the search, >= 0."""
        return 0 if self._reader is None else self._reader.cost

    @property
    def reading_left(self) -> int:
        """Estimated cost of `go_on`, >= 1."""
        return 1 if self._reader is None else self._reader.price_left

    @property
    def needs_vector(self) -> bool:
        """Whether the query must be encoded, for dense retrieval."""
        return self.call.source == "text" and self.call.retriever in ("dense", "hybrid")

    def preprocess(self) -> WeightedTokens:
        """Makes the query encoder's input of the query text."""
        reading = analyze_query(self.index, self.call.text, self.call.typos)
        require_words(reading.tokens)
        self.text, self.tokens, self.corrected = reading.text, reading.tokens, reading.corrected
        self.clock.lap("preprocess")
        return reading.tokens

    def run(self) -> SearchAnswer:
        """Runs all stages."""
        encoded = None
        if self.call.source == "text":
            tokens = self.preprocess()
            if self.needs_vector:
                encoded = self.index.encoder.read_batch([tokens])[0]
                self.clock.lap("encode")
        return self.retrieve(encoded)

    def retrieve(self, encoded: EncodedText | None) -> SearchAnswer:
        """Runs the stages after encoding."""
        with wanted_until(self.deadline.at):
            return self._retrieve(encoded)

    def _retrieve(self, encoded: EncodedText | None) -> SearchAnswer:
        index, call, clock = self.index, self.call, self.clock
        allowed = _allowed(index, call, clock)
        found = ranked = self.ranked = self._rank(encoded, allowed)
        if call.rerank is not None:
            ranked = self._reranked(ranked, call.rerank, None if encoded is None else encoded.vector)
            clock.lap("rerank")
        if call.arrangement is not None:
            ranked = arrange(ranked, call.arrangement, index[COLUMNS].columns, partial(_mask, index, clock))
            clock.switch("search")
            clock.check()
        self.ranked = ranked
        self._facets = _count(index, call, found.rows, allowed, clock)
        self._reader = self._open(page_of(call, ranked))
        return self._answer(self._reader.run(self.reads_first), self._facets, self._explanations)

    def go_on(self) -> SearchAnswer:
        """Reads the remaining hits after a `LongHitsError`."""
        assert self._reader is not None  # noqa: S101 - `retrieve` raised LongHitsError
        self.clock.switch("queue")
        return self._answer(self._reader.run(), self._facets, self._explanations)

    def _rank(self, encoded: EncodedText | None, allowed: RowMask | None) -> RankedDocuments:
        """Ranks the candidates, or only as many as the page needs; an approximate search may find fewer."""
        index, call = self.index, self.call
        if call.retriever == "hybrid" and call.source == "text" and encoded is not None:
            return self._rank_hybrid(encoded, allowed)
        if call.source != "text":
            ranked = rank_without_text(index, call, allowed)
        elif encoded is None:
            by: Words = "learned" if call.retriever == "learned-sparse" else "lexical"
            ranked = rank_lexical(index, self.text, call.candidates, allowed, by)
        else:
            # The first hits of an exact search do not depend on the number of candidates.
            is_exact = index[VECTORS].kind == "flat" or call.params.exact
            is_page = is_exact and not call.facets and call.arrangement is None and call.rerank is None
            needed = call.offset + call.top_k if is_page else call.candidates
            ranked = rank_dense(index, encoded.vector, needed, call.params, allowed)
        self.clock.lap("search")
        return ranked

    def _rank_hybrid(self, encoded: EncodedText, allowed: RowMask | None) -> RankedDocuments:
        """Runs both retrievers of a hybrid search, and compares tokens if time allows."""
        index, call, clock = self.index, self.call, self.clock
        fusion, tokens = call.fusion or index.fusion, None
        if call.late and self.tokens is not None and encoded.tokens is not None:
            tokens = QueryTokens.of(self.tokens, encoded.tokens)
        self._query = query = EncodedQuery(self.text, encoded.vector, tokens)
        dense, gathered = gather_hybrid(
            index, query, call.candidates, call.params, allowed, reads_head(fusion)
        )
        clock.lap("search")
        is_over = clock.has_no_time_for_another(RERANK_RESERVE_S)
        # A re-ranker needs the uncalibrated scores, not probabilities.
        calibrates = call.rerank is None
        ranked = fuse_hybrid(
            index, gathered, call.candidates, fusion, dense.passages, is_over, calibrates=calibrates
        )
        self._confidence = ranked.confidence
        if gathered.score_late is None or fusion.method != "convex":
            clock.switch("search")
        else:
            clock.lap("late")
            if "late" not in ranked.parts:
                self.left_out += ("late",)
        return ranked

    def _reranked(self, ranked: RankedDocuments, wanted: Reranking, vector: Vector | None) -> RankedDocuments:
        """Re-ranks the first hits, as many as time allows."""
        index, call = self.index, self.call
        unit = score_unit(index, call.retriever, call.fusion)
        is_over = self.clock.has_no_time_for_another(RERANK_RESERVE_S)
        reordered, is_whole = rerank(index, self.text, ranked, wanted, unit, vector, is_over)
        if not is_whole:
            self.left_out += ("rerank_partial",)
        return reordered

    def unfinished(self) -> SearchAnswer:
        """The partial result after the deadline: the page's documents, if they were ranked, without snippets.

        It may run while another thread still works on the search; it takes as long as reading a page.
        """
        page = [] if self.ranked is None else page_of(self.call, self.ranked)
        size = AnswerSize(self.call.max_bytes, len(page), may_cut=self.call.may_cut)
        maker = HitMaker(self.index, self.call, self.text)
        for place, (found, document, passage) in enumerate(documents_of(self.index, page)):
            size.add(maker.hit(place, found, document, passage))
        return self._answer(tuple(size.found), {}, None)

    def _to_explain(self, page: Sequence[RankedHit]) -> list[Document]:
        """The encoder's input of each hit; also checks the size of the response before the expensive explanation."""
        size = AnswerSize(self.call.max_bytes, len(page), may_cut=self.call.may_cut)
        read, maker = [], HitMaker(self.index, self.call, self.text)
        for place, (found, document, passage) in enumerate(documents_of(self.index, page)):
            size.add(maker.hit(place, found, document, None, has_vector=False))
            read.append(passage_document(document, passage))
        return read

    def _with_attention(
        self, explanations: Explanations, page: Sequence[RankedHit], read: Sequence[Document]
    ) -> Explanations:
        """Adds the re-ranker's attention in the hits that it re-ranked."""
        places = [place for place, hit in enumerate(page) if "rerank" in hit.parts]
        if not places:
            return explanations
        hits, documents = [page[place] for place in places], [read[place] for place in places]
        rows, passages = [hit.row for hit in hits], [hit.passage for hit in hits]
        words = attended_words(self.index, self.text, rows, passages, documents)
        return replace(explanations, reranked=dict(zip(places, words, strict=True)))

    def _answer(
        self,
        hits: tuple[Hit, ...],
        facets: dict[str, FacetCounts],
        explanations: Explanations | None,
    ) -> SearchAnswer:
        left_out = self.left_out + (() if self._reader is None else self._reader.left_out)
        found = FoundHits(
            index=index_name(self.index),
            query=self._analyzed(explanations),
            hits=hits,
            confidence=self._confidence,
            facets={name: facet_of(counts) for name, counts in facets.items()},
        )
        return SearchAnswer(found, self.clock.timings_ms, left_out)

    def _analyzed(self, explanations: Explanations | None) -> Query:
        tokens, corrected = self.tokens, self.corrected
        return Query(
            text=self.call.text,
            tokens=0 if tokens is None else len(tokens),
            truncated=tokens is not None and tokens.truncated,
            terms=() if tokens is None else query_terms(self.index, tokens),
            corrected=Correction(self.text, dict(corrected)) if corrected else None,
            unknown=() if tokens is None else unknown_words(self.index, tokens),
            explanation=None if explanations is None else QueryExplanation(read_words(explanations.query)),
        )

    def _open(self, page: Sequence[RankedHit]) -> PageReader:
        """Makes the reader of the page, with explanations if requested."""
        index, call, clock = self.index, self.call, self.clock
        if call.explain is not None:
            read = self._to_explain(page)
            clock.lap("fetch")
            self._explanations = explain(index, self.text, read, call.explain.leave_one_out, clock.check)
            if call.rerank is not None:
                self._explanations = self._with_attention(self._explanations, page, read)
            if (compared := self._compared()) is not None:
                answered = answers_of(index, *compared, rows_of(page), read)
                self._explanations = replace(self._explanations, answered=answered)
            clock.lap("explain")
        meaning = self._meaning(page) if call.highlight is not None else None
        return PageReader(index, call, self.text, page, self._explanations, clock, meaning)

    def _compared(self) -> tuple[EncodedQuery, QueryTokens] | None:
        """The query and its tokens, if they were compared with those of hits."""
        query = self._query
        if query is None or query.tokens is None or self.ranked is None or "late" not in self.ranked.parts:
            return None
        return query, query.tokens

    def _meaning(self, page: Sequence[RankedHit]) -> Meaning | None:
        """Finds the words of the hits with similar meaning, if tokens were compared."""
        if (compared := self._compared()) is None or not can_tell(self.index.preprocessor):
            return None
        return Meaning(self.index, *compared, *rows_of(page))


def _allowed(index: Index, call: SearchCall, clock: StageClock) -> RowMask | None:
    if call.filter is None:
        return None
    allowed = index[COLUMNS].masks.mask(call.filter, clock.check)
    clock.lap("filter")
    return allowed


def _mask(index: Index, clock: StageClock, expression: Expression) -> RowMask:
    return index[COLUMNS].masks.mask(expression, clock.check)


def _count(
    index: Index, call: SearchCall, rows: NDArray[np.int64], allowed: RowMask | None, clock: StageClock
) -> dict[str, FacetCounts]:
    """Facets of the candidates; approximate if more documents may match."""
    if not call.facets:
        return {}
    most = index[STORED_FIELDS].count if allowed is None else allowed.count
    if call.source == "browse":
        most = len(rows)
    if call.retriever in ("lexical", "learned-sparse") and len(rows) < call.candidates:
        most = len(rows)  # no other document has a term of the query
    counts = {
        facet.field: count_values(index[COLUMNS].columns, facet.field, rows, facet.limit, most)
        for facet in call.facets
    }
    clock.lap("facets")
    return counts
