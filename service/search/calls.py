"""Input and output of a search: the checked request, and the result before it becomes JSON."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from glow.contract import FoundHits
from glow.index import Fusion
from glow.index.columns.filters import Expression
from glow.index.columns.masks import FacetRequest
from glow.index.vectors import SearchParams
from glow.search import Arrangement, Reranking, Retriever, RetrieverOrAuto, Typos
from glow.text import Highlighting

__all__ = [
    "ExplainCall",
    "HighlightCall",
    "RankedHit",
    "SearchAnswer",
    "SearchCall",
    "SearchLimits",
    "Source",
]


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
    """A checked search request.

    Attributes:
        text: the query.
        top_k: hits to return, >= 1.
        offset: hits to skip, >= 0.
        candidates: hits to gather, >= offset + top_k.
        params: how thoroughly to search.
        retriever: by vectors, words, or both; the latter two need `index.impacts`.
        fusion: how `hybrid` fuses its rankings; None: as the index is tuned.
        filter: restricts the documents; None: all.
        facets: fields to count over the candidates.
        highlight, explain: snippets and explanation of each hit; None for none. `explain` needs `index.explainer`.
        fields, metadata: names of fields and metadata to return; None for all.
        max_bytes: most bytes of all hits in total; 0 for no limit.
        may_cut: whether hits may be cut to fit.
        typos: whether to correct typos in the query.
        arrangement: boosts, sorting and grouping of the candidates; None for none.
        source: what to search for: the text, the vector, documents like another one, or all that match the filter.
        vector: vector of the index's dimensions, L2-normalized; None unless it is the source.
        like: id of a document; "" unless it is the source.
        rerank: how to re-rank the first hits; None: not at all. Needs `index.reranker`.
        late: whether a hybrid search compares tokens, if the index has token vectors.
        vectors: whether to return the vector of each hit.
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
    fields: tuple[str, ...] | None = None
    metadata: tuple[str, ...] | None = None
    max_bytes: int = 0
    may_cut: bool = False
    typos: Typos = "auto"
    arrangement: Arrangement | None = None
    source: Source = "text"
    vector: tuple[float, ...] | None = None
    like: str = ""
    rerank: Reranking | None = None
    late: bool = True
    vectors: bool = False


class RankedHit(NamedTuple):
    """A hit before its document is read.

    Attributes:
        row: row of the document in the index.
        score: the ranking score; the probability of relevance if the response has a confidence.
        parts: `dense` (cosine, in [-1, 1]), `lexical` or `learned` (>= 0), `late` (about -1 to 1), `fused` or `rerank` (of
            any sign) -> score, if known.
        passage: row of the best passage, if the index has passages and dense retrieval found it.
    """

    row: int
    score: float
    parts: dict[str, float]
    passage: int | None


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of one search.

    Attributes:
        found: the members of the response that depend only on index and request.
        timings_ms: stage -> milliseconds.
        left_out: steps skipped for lack of time, as in `degraded` (docs/search.md): `late`, `snippets`, `rerank_partial`.
    """

    found: FoundHits
    timings_ms: dict[str, float]
    left_out: tuple[str, ...] = ()
