"""One search as ARCHITECTURE tells it: analyze, preprocess, encode, filter, search, fuse, re-rank, match, arrange, render.

The functions block and may run in many threads. `service/search/pool.py` keeps all stages off the event loop, except
the first one, which takes microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from glow.contract import Correction, FoundHits, Hit, Matching, Query, QueryExplanation
from glow.errors import QueryError
from glow.index import Index, Ranking, RowMask, best, wanted_until
from glow.index.columns import COLUMNS
from glow.index.columns.filters import Expression
from glow.index.columns.masks import FacetCounts, count_values
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.records import Document
from glow.search import (
    NO_OTHERS,
    AnalyzedQuery,
    Arrangement,
    Confidence,
    EncodedQuery,
    Matches,
    Others,
    RankedDocuments,
    WordMatching,
    Words,
    analyze_query,
    arrange,
    attended_words,
    confidence_of,
    constraint_mask,
    coverage_scorer,
    fuse_hybrid,
    gather_hybrid,
    near_matches,
    rank_dense,
    rank_lexical,
    reads_head,
    rerank,
    score_unit,
    unknown_words,
    words_searched,
)
from glow.text import Preprocessor, WeightedTokens
from glow_service.search.clock import NEVER, Deadline, StageClock
from glow_service.search.explanations import Explanations, explain
from glow_service.search.hits import AnswerSize, PageReader, documents_of, page_of, passage_document
from glow_service.search.plan import SCORE, SearchPlan
from glow_service.search.render import (
    HitMaker,
    RankedHit,
    facet_of,
    index_name,
    query_terms,
    read_words,
    vector_of,
)

MOST_SCORED = 20_000
"""Of more matches in another order, only the page is scored: scores would decide ties alone."""
RERANK_RESERVE_S = 0.005
"""Time reserved after re-ranking for reading the page's documents and making the response, in seconds."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of one search."""

    found: FoundHits  # the members of the response that depend only on index and request
    timings_ms: dict[str, float]  # stage -> milliseconds
    left_out: tuple[str, ...] = ()  # steps skipped for lack of time: `rerank_partial`


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

    `run` runs every stage. The service calls `preprocess`, encodes many queries at once or finds the vector in a
    cache, and calls `retrieve`. The methods block, and only one thread at a time may call them.
    """

    __slots__ = (
        "_confidence", "_counted", "_explanations", "_facets", "_reader", "_score", "allowed", "analyzed", "clock", "deadline",
        "index", "left_out", "matches", "may_move", "plan", "ranked", "text", "tokens",
    )  # fmt: skip

    def __init__(self, index: Index, plan: SearchPlan, deadline: Deadline = NEVER) -> None:
        self.index, self.plan, self.deadline = index, plan, deadline
        self.clock = StageClock(deadline)
        self.tokens: WeightedTokens | None = None
        self.text = plan.text
        self.analyzed: AnalyzedQuery | None = None
        self.ranked: RankedDocuments | None = None
        self.left_out: tuple[str, ...] = ()
        self.may_move = False  # whether `retrieve` raises `LongHitsError` before it reads long hits
        self._facets: dict[str, FacetCounts] = {}
        self._explanations: Explanations | None = None
        self._reader: PageReader | None = None
        self._confidence: Confidence | None = None
        self.allowed: RowMask | None = None  # by the filter and the syntax; None: all
        self.matches: Matches | None = None  # None: unknown, so only candidates are counted
        self._counted: NDArray[np.int64] = np.empty(0, np.int64)  # rows that facets count
        # Scores rows of the ranking; None: they have their scores
        self._score: Callable[[NDArray[np.int64]], RankedDocuments] | None = None

    @property
    def needs_vector(self) -> bool:
        """Whether the query must be encoded, for dense retrieval."""
        return self.plan.source == "text" and self.plan.retriever in ("dense", "hybrid")

    def run(self) -> SearchAnswer:
        """Runs all stages."""
        vector = None
        if self.plan.source == "text":
            tokens = self.preprocess()
            if self.needs_vector:
                vector = self.index.encoder.run([tokens])[0]
                self.clock.lap("encode")
        return self.retrieve(vector)

    def preprocess(self) -> WeightedTokens:
        """Makes the query encoder's input of the query text."""
        plan = self.plan
        reading = self.analyzed = analyze_query(
            self.index, plan.text, plan.typos, plan.syntax, prefix=plan.prefix, synonyms=plan.synonyms
        )
        require_words(reading.tokens)
        self.text, self.tokens = reading.text, reading.tokens
        self.clock.lap("preprocess")
        return reading.tokens

    @property
    def others(self) -> Others:
        """What else counts as a word of the query."""
        return NO_OTHERS if self.analyzed is None else self.analyzed.others

    def retrieve(self, vector: NDArray[np.float32] | None) -> SearchAnswer:
        """Runs the stages after encoding."""
        with wanted_until(self.deadline.at):
            page = self._page(self.rank(vector))
            if self.plan.explain:
                self._explanations = self._explain(page)
            self._reader = PageReader(
                self.index, self.plan, self.text, page, self._explanations, self.clock, self.others
            )
            return self._render(self._reader.run(may_move=self.may_move))

    def rank(self, vector: NDArray[np.float32] | None) -> RankedDocuments:
        """Runs the stages up to the ranking that pages are cut from, and counts facets."""
        self.allowed = self._filter()
        self.ranked = self._search(vector, self.allowed)
        self.ranked = self._rerank(self.ranked, vector)
        self.ranked = self._arrange(self.ranked)
        self._facets = self._count(self.allowed)
        self.ranked = self._grouped(self.ranked)
        return self.ranked

    def go_on(self) -> SearchAnswer:
        """Reads the remaining hits after a `LongHitsError`."""
        assert self._reader is not None  # noqa: S101 - `retrieve` raised LongHitsError
        self.clock.switch("queue")
        return self._render(self._reader.run(may_move=False))

    def unfinished(self) -> SearchAnswer:
        """The partial result after the deadline: the page's documents, if they were ranked, without snippets.

        It may run while another thread still works on the search; it takes as long as reading a page.
        """
        page = [] if self.ranked is None else page_of(self.plan, self.ranked)
        size = AnswerSize(self.plan.max_bytes, len(page), may_cut=self.plan.may_cut)
        maker = HitMaker(self.index, self.plan, self.text)
        for place, (hit, document, passage) in enumerate(documents_of(self.index, page)):
            size.add(maker.hit(place, hit, document, passage))
        self._facets, self._explanations = {}, None
        return self._render(tuple(size.hits))

    # Filter.

    def _filter(self) -> RowMask | None:
        constraints = () if self.analyzed is None else self.analyzed.constraints
        if self.plan.filter is None and not constraints:
            return None
        allowed = None if self.plan.filter is None else self._mask(self.plan.filter)
        if constraints:
            allowed = constraint_mask(self.index, constraints, allowed, self.clock.check)
        self.clock.lap("filter")
        return allowed

    def _mask(self, expression: Expression) -> RowMask:
        return self.index[COLUMNS].masks.mask(expression, self.clock.check)

    # Search, fuse.

    def _search(self, vector: NDArray[np.float32] | None, allowed: RowMask | None) -> RankedDocuments:
        """Ranks the candidates that match; other matches follow them, if the page or an arrangement needs them."""
        index, plan = self.index, self.plan
        if plan.retriever == "hybrid" and plan.source == "text" and vector is not None:
            return self._search_hybrid(vector, allowed)
        if plan.source != "text":
            ranked = self._search_without_text(allowed)
        elif vector is None:
            ranked = self._search_lexical(allowed)
        else:
            ranked = rank_dense(index, vector, plan.candidates, plan.params, allowed)
            if plan.match != "any":
                self.matches = near_matches(ranked, plan.candidates)
                ranked = ranked.take(self.matches.holds(ranked.rows))
        self.clock.lap("search")
        return ranked

    def _search_lexical(self, allowed: RowMask | None) -> RankedDocuments:
        index, plan = self.index, self.plan
        by: Words = "learned" if plan.retriever == "learned-sparse" else "lexical"
        ranked = rank_lexical(index, self.text, plan.candidates, allowed, by, self.others)
        self.matches = self._match(
            (ranked.scores[:0], ranked.rows[:0]), 0.0, (ranked.scores, ranked.rows), allowed
        )
        if self.matches is None:
            return ranked
        impacts, words = index[POSTINGS], words_searched(index, self.text, self.others)

        def score(rows: NDArray[np.int64]) -> RankedDocuments:
            scores, rows = best(impacts.score(words, rows), rows, max(len(rows), 1), index.order)
            return RankedDocuments(scores, rows, {by: scores}, {})

        return self._whole(ranked, score)

    def _search_without_text(self, allowed: RowMask | None) -> RankedDocuments:
        """Ranks by a vector or for documents like another one, or lists all that the filter allows by id."""
        index, plan = self.index, self.plan
        if plan.source == "browse":
            assert allowed is not None  # noqa: S101 - browsing needs a filter
            rows = allowed.rows
            if index.order is not None:
                rows = rows[np.argsort(index.order[rows], kind="stable")]
            return RankedDocuments(np.zeros(len(rows), np.float32), rows, {}, {})
        if plan.source == "vector":
            vector = np.array(plan.vector, np.float32)
            return rank_dense(index, vector, plan.candidates, plan.params, allowed)
        row = index[STORED_FIELDS].find(plan.like)
        if row is None:
            raise not_found(plan.like)
        ranked = rank_dense(index, vector_of(index, row), plan.candidates + 1, plan.params, allowed)
        return ranked.take(ranked.rows != row)

    def _search_hybrid(self, vector: NDArray[np.float32], allowed: RowMask | None) -> RankedDocuments:
        """Runs both retrievers of a hybrid search, and fuses their rankings."""
        index, plan = self.index, self.plan
        fusion = plan.fusion or index.fusion
        query = EncodedQuery(self.text, vector, self.others)
        dense, gathered = gather_hybrid(
            index, query, plan.candidates, plan.params, allowed, reads_head(fusion)
        )
        # A re-ranker needs the uncalibrated scores, not probabilities.
        calibrates = plan.rerank is None
        fuse = partial(
            fuse_hybrid, index, gathered, fusion=fusion, passages=dense.passages, calibrates=calibrates
        )
        ranked = fuse(plan.candidates)
        nearest = dense.scores if gathered.head is None else gathered.head[0]
        near = (dense.scores, dense.rows)
        top = float(nearest[0]) if len(nearest) else 0.0
        self.matches = self._match(near, top, gathered.lexical, allowed)
        if self.matches is not None:
            ranked = self._whole(
                ranked, lambda rows: fuse(max(len(rows) + 2 * plan.candidates, 1), further=rows)
            )
        self._confidence = self._rate(ranked)
        self.clock.lap("search")
        return ranked

    # Matches.

    def _match(
        self, near: Ranking, nearest: float, lexical: Ranking, allowed: RowMask | None
    ) -> Matches | None:
        """The matches, from the ranked candidates; None for learned words, which do not tell what matches."""
        index, plan = self.index, self.plan
        if plan.retriever == "learned-sparse":
            return None
        words = index.preprocessor.pieces.words(self.text)
        matching = WordMatching(words, index.preprocessor.weigher.idf, plan.match, self.others)
        if index[POSTINGS].is_remote:
            pool = np.union1d(near[1], lexical[1])
            is_whole = len(lexical[1]) < plan.candidates
            return matching.among(index[POSTINGS], pool, near, nearest, is_whole=is_whole)
        return matching.everywhere(index[POSTINGS], near, nearest, allowed)

    def _whole(
        self, ranked: RankedDocuments, score: Callable[[NDArray[np.int64]], RankedDocuments]
    ) -> RankedDocuments:
        """The candidates that match, and if the page or an arrangement needs them, every other match behind them."""
        assert self.matches is not None  # noqa: S101 - called with matches
        plan, matches = self.plan, self.matches
        first = ranked.take(matches.holds(ranked.rows))
        if plan.arrangement is None and plan.offset + plan.top_k <= len(first.rows):
            return first
        further = np.setdiff1d(matches.rows, first.rows, assume_unique=True)
        if not len(further):
            return first
        if len(further) > MOST_SCORED and not self._scores_decide:
            self._score = score
            further = further[np.argsort(self.index.order[further], kind="stable")]
            rest = RankedDocuments(np.zeros(len(further), np.float32), further, {}, {})
        else:
            every = score(further)
            rest = every.take(np.isin(every.rows, further))
        parts = {
            name: np.concatenate([values, rest.parts.get(name, np.full(len(rest.rows), np.nan, np.float32))])
            for name, values in first.parts.items()
        }
        rows, scores = np.concatenate([first.rows, rest.rows]), np.concatenate([first.scores, rest.scores])
        return RankedDocuments(scores, rows, parts, {**rest.passages, **first.passages})

    @property
    def _scores_decide(self) -> bool:
        """Whether the scores of all matches decide what a page shows, and not only ties."""
        order = self.plan.arrangement
        if order is None or not order.sort or self.plan.top_k > MOST_SCORED:
            return True
        by_score = SCORE in {key.field for key in order.sort}
        return bool(by_score or order.boosts or order.min_score is not None)

    def _page(self, ranked: RankedDocuments) -> list[RankedHit]:
        """The hits of the requested page, with their scores."""
        plan = self.plan
        if self._score is not None:
            rows = ranked.rows[plan.offset : plan.offset + plan.top_k]
            scored = self._score(rows)
            places = [int(np.flatnonzero(scored.rows == row)[0]) for row in rows.tolist()]
            ranked, plan = scored.take(np.array(places, np.int64)), replace(plan, offset=0)
        return page_of(plan, ranked)

    def _rate(self, ranked: RankedDocuments) -> Confidence | None:
        """Confidence in the best match; None where scores are no probabilities."""
        if "fused" not in ranked.parts:
            return None
        if not len(ranked.rows):
            return "none"
        words = self.index.preprocessor.pieces.words(self.text)
        idf = self.index.preprocessor.weigher.idf
        covered = coverage_scorer(self.index[POSTINGS], words, idf, self.others, power=1.0)(ranked.rows[:1])
        return confidence_of(float(ranked.parts["dense"][0]), float(covered[0]))

    # Re-rank, arrange, facets.

    def _rerank(self, ranked: RankedDocuments, vector: NDArray[np.float32] | None) -> RankedDocuments:
        """Re-ranks the first hits, as many as time allows."""
        index, plan = self.index, self.plan
        if plan.rerank is None:
            return ranked
        unit = score_unit(index, plan.retriever, plan.fusion)
        is_over = self.clock.has_no_time_for_another(RERANK_RESERVE_S)
        reordered, is_whole = rerank(index, self.text, ranked, plan.rerank, unit, vector, is_over)
        if not is_whole:
            self.left_out += ("rerank_partial",)
        self.clock.lap("rerank")
        return reordered

    def _arrange(self, ranked: RankedDocuments) -> RankedDocuments:
        """Boosts, a minimum score and another order; groups are made when the matches are counted."""
        self._counted = ranked.rows if self.matches is None else self.matches.rows
        arrangement = self.plan.arrangement
        if arrangement is None:
            return ranked
        arranged = self._arranged(ranked, replace(arrangement, group_by=""))
        self._counted = arranged.rows
        return arranged

    def _grouped(self, ranked: RankedDocuments) -> RankedDocuments:
        order = self.plan.arrangement
        if order is None or not order.group_by:
            return ranked
        return self._arranged(ranked, Arrangement(group_by=order.group_by, group_size=order.group_size))

    def _arranged(self, ranked: RankedDocuments, arrangement: Arrangement) -> RankedDocuments:
        arranged = arrange(ranked, arrangement, self.index[COLUMNS].columns, self._mask)
        self.clock.switch("search")
        self.clock.check()
        return arranged

    @property
    def knows_all(self) -> bool:
        """Whether every match is known, so that counts are exact."""
        if self.matches is not None:
            return self.matches.is_whole
        # No other document has a learned term of the query.
        is_short = self.plan.retriever == "learned-sparse" and len(self._counted) < self.plan.candidates
        return is_short or self.plan.source == "browse"

    def _count(self, allowed: RowMask | None) -> dict[str, FacetCounts]:
        """Facets of the matches; of the candidates, and approximate, if it is not known what matches."""
        index, plan, rows = self.index, self.plan, self._counted
        if not plan.facets:
            return {}
        most = len(rows)
        if not self.knows_all:
            most = index[STORED_FIELDS].count if allowed is None else allowed.count
        columns = index[COLUMNS].columns
        counts = {
            facet.field: count_values(columns, facet.field, rows, facet.limit, most) for facet in plan.facets
        }
        self.clock.lap("facets")
        return counts

    # Explain and render.

    def _explain(self, page: Sequence[RankedHit]) -> Explanations:
        index, plan = self.index, self.plan
        read = self._to_explain(page)
        self.clock.lap("fetch")
        explanations = explain(index, self.text, read, plan.leave_one_out, self.clock.check)
        reranked = [place for place, hit in enumerate(page) if "rerank" in hit.parts]
        if reranked:
            hits, documents = [page[place] for place in reranked], [read[place] for place in reranked]
            rows, passages = [hit.row for hit in hits], [hit.passage for hit in hits]
            words = attended_words(index, self.text, rows, passages, documents)
            explanations = replace(explanations, reranked=dict(zip(reranked, words, strict=True)))
        self.clock.lap("explain")
        return explanations

    def _to_explain(self, page: Sequence[RankedHit]) -> list[Document]:
        """The encoder's input of each hit; also checks the size of the response before the expensive explanation."""
        size = AnswerSize(self.plan.max_bytes, len(page), may_cut=self.plan.may_cut)
        read, maker = [], HitMaker(self.index, self.plan, self.text)
        for place, (hit, document, passage) in enumerate(documents_of(self.index, page)):
            size.add(maker.hit(place, hit, document, None, has_vector=False))
            read.append(passage_document(document, passage))
        return read

    def _render(self, hits: tuple[Hit, ...]) -> SearchAnswer:
        tokens, explanations, analyzed = self.tokens, self._explanations, self.analyzed
        matches, unknown = self.matches, () if tokens is None else unknown_words(self.index, tokens)
        query = Query(
            text=self.plan.text,
            tokens=0 if tokens is None else len(tokens),
            truncated=tokens is not None and tokens.truncated,
            terms=() if tokens is None else query_terms(self.index, tokens),
            corrected=Correction(self.text, dict(analyzed.corrected))
            if analyzed is not None and analyzed.corrected
            else None,
            unknown=tuple(word for word in unknown if word not in self.others),
            synonyms={} if analyzed is None else dict(analyzed.synonyms),
            completed=() if analyzed is None else analyzed.completed,
            explanation=None if explanations is None else QueryExplanation(read_words(explanations.query)),
        )
        result = FoundHits(
            index=index_name(self.index),
            query=query,
            hits=hits,
            total=len(self._counted) if self.knows_all else None,
            matching=None if matches is None else Matching(matches.words, matches.similar),
            confidence=self._confidence,
            facets={name: facet_of(counts) for name, counts in self._facets.items()},
        )
        return SearchAnswer(result, self.clock.timings_ms, self.left_out)
