"""Checked searches, their results, and their costs."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from glow.contract import FoundHits
from glow.index import Fusion
from glow.index.columns.filters import Expression
from glow.index.columns.masks import FacetRequest
from glow.index.vectors import SearchParams
from glow.search import Arrangement, Reranking, Retriever, RetrieverOrAuto, Typos
from glow.text import Highlighting

Source = Literal["text", "vector", "like", "browse"]


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits and defaults of search requests; `docs/reference/settings.md` describes each."""

    max_query_chars: int
    max_top_k: int
    max_candidates: int
    default_candidates: int
    max_filter_terms: int
    max_explained_hits: int
    max_answer_bytes: int
    max_timeout_ms: int
    default_timeout_ms: int
    default_retriever: RetrieverOrAuto
    late_interaction: bool


@dataclass(frozen=True, slots=True)
class HighlightCall:
    """Fields and sizes of snippets."""

    fields: tuple[str, ...]
    options: Highlighting


@dataclass(frozen=True, slots=True)
class ExplainCall:
    """What to explain in addition to weights and attention."""

    leave_one_out: bool


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A checked search request."""

    text: str
    top_k: int  # hits to return, >= 1
    offset: int  # hits to skip, >= 0
    candidates: int  # hits to gather, >= offset + top_k
    params: SearchParams  # how thoroughly to search
    retriever: Retriever = "dense"  # by vectors, words, or both; the latter two need `index.impacts`
    fusion: Fusion | None = None  # how `hybrid` fuses its rankings; None: as the index is tuned
    filter: Expression | None = None  # restricts the documents; None: all
    facets: tuple[FacetRequest, ...] = ()  # fields to count over the candidates
    highlight: HighlightCall | None = None
    explain: ExplainCall | None = None
    fields: tuple[str, ...] | None = None
    metadata: tuple[str, ...] | None = None
    max_bytes: int = 0  # most bytes of all hits in total; 0 for no limit
    may_cut: bool = False  # whether hits may be cut to fit
    typos: Typos = "auto"  # whether to correct typos in the query
    arrangement: Arrangement | None = None  # boosts, sorting and grouping of the candidates; None for none
    source: Source = "text"
    vector: tuple[float, ...] | None = None  # L2-normalized, if it is the source
    like: str = ""  # id of a document; "" unless it is the source
    rerank: Reranking | None = None  # how to re-rank the first hits; None: not at all. Needs `index.reranker`
    late: bool = True  # whether a hybrid search compares tokens, if the index has token vectors
    vectors: bool = False  # whether to return the vector of each hit


class RankedHit(NamedTuple):
    """A hit before its document is read."""

    row: int  # row of the document in the index
    score: float  # the ranking score; the probability of relevance if the response has a confidence
    # `dense` (cosine, in [-1, 1]), `lexical`, `learned` (>= 0), `late` (about -1 to 1), `fused`, `rerank` (any sign)
    parts: dict[str, float]
    passage: int | None  # row of the best passage, if the index has passages and dense retrieval found it


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of one search."""

    found: FoundHits  # the members of the response that depend only on index and request
    timings_ms: dict[str, float]  # stage -> milliseconds
    left_out: tuple[str, ...] = ()  # steps skipped for lack of time: `late`, `snippets`, `rerank_partial`


# Costs of requests, in units of a plain search: slots in the bulk worker pool, and tokens of the rate limit. Integers,
# estimated before any work (docs/security.md has the table); the cost of long hits is charged after they were read.

EXPLAINED_HIT = 4
"""Cost per explained hit, which the document encoder reads."""
LEAVE_ONE_OUT = 8
"""Cost of encoding the query without each of its words."""
HIGHLIGHTED_CHARS = 50_000
"""Requested characters of snippets per unit of cost."""
READ_CHARS = 100_000
"""Characters of hits that are read for snippets, per unit of cost."""
FETCHED_CHARS = 2_000_000
"""Characters of fetched documents per unit of cost, also if only parts are returned."""
MOST_READING = 1
"""Largest cost of hits in the search's first worker pool; the remaining hits are read in the bulk pool."""
QUERY_CHARS = 1_000
"""Characters of a query per unit of cost, which 200 to 256 tokens are."""
FILTER_TERMS = 200
"""Conditions, groups and values of a filter per unit of cost."""
RERANKED_HITS = 20
"""Re-ranked hits per unit of cost."""
COMPARED_CANDIDATES = 500
"""Candidates whose tokens a hybrid search compares, per unit of cost."""
TEXTS = {"query": 1, "document": 4}
"""Cost per text of `/v1/embeddings`, by encoder."""
TEXT_CHARS = 10_000
"""Characters of these texts per unit of cost: all their words are counted before the token limit cuts them."""
MOST_PLAIN = 4
"""A search that costs more runs in the bulk worker pool."""


def request_cost(call: SearchCall, filter_terms: int = 0) -> int:
    """The cost of one search, >= 1; an ordinary one, with snippets and a small filter, costs 1."""
    cost = 1 + len(call.text) // QUERY_CHARS + filter_terms // FILTER_TERMS
    if call.highlight is not None:
        options = call.highlight.options
        snippet_chars = options.fragments * options.fragment_chars * len(call.highlight.fields)
        cost += call.top_k * snippet_chars // HIGHLIGHTED_CHARS
    if call.late and call.retriever == "hybrid":
        cost += call.candidates // COMPARED_CANDIDATES
    if call.rerank is not None:
        cost += -(-call.rerank.depth // RERANKED_HITS)
    if call.explain is not None:
        cost += call.top_k * EXPLAINED_HIT + (LEAVE_ONE_OUT if call.explain.leave_one_out else 0)
    return cost


def reading_cost(fetched: int, read: int) -> int:
    """The cost of reading hits, >= 0: characters of their documents, and characters read for snippets."""
    return fetched // FETCHED_CHARS + read // READ_CHARS


def texts_cost(count: int, input_type: str, characters: int) -> int:
    """The cost of embeddings for a number of texts with a total number of characters, >= 1."""
    return count * TEXTS[input_type] + characters // TEXT_CHARS
