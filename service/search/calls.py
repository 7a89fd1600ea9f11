"""Input and output of a search: the checked request, and the result before it becomes JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from glow.index import Fusion
from glow.index.columns.filters import Expression, FacetCounts, FacetRequest
from glow.index.passages import FoundPassage
from glow.index.vectors import SearchParams
from glow.records import Document
from glow.search import Arrangement, Confidence, Reranking, Retriever, RetrieverOrAuto, Typos
from glow.text import Highlighting
from glow_service.search.explanations import Explanations

__all__ = [
    "ExplainCall",
    "FoundDocument",
    "HighlightCall",
    "SearchAnswer",
    "SearchCall",
    "SearchLimits",
    "Source",
    "Term",
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


@dataclass(frozen=True, slots=True)
class Term:
    """A query term: its idf, its weight for the encoder (both finite, >= 0), and whether documents contain it."""

    word: str
    idf: float
    weight: float
    known: bool


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A hit with its document.

    Attributes:
        score: the ranking score; the probability of relevance if the response has a confidence.
        row: row of the document in the index.
        parts: `dense` (cosine, in [-1, 1]), `lexical` or `learned` (>= 0), `late` (about -1 to 1), `fused` or `rerank` (of
            any sign) -> score, if known.
        document: the stored document, with the requested fields and metadata.
        passage: its best passage, if the index has passages and dense retrieval found it.
        truncated: names of the parts of the document that were cut or omitted to fit.
        highlights: field -> snippets as HTML; None if not requested.
        because: query word that the document lacks -> its own related word; only if snippets or explanations were
            requested.
    """

    score: float
    row: int
    parts: Mapping[str, float]
    document: Document
    passage: FoundPassage | None = None
    truncated: tuple[str, ...] = ()
    highlights: Mapping[str, list[str]] | None = None
    because: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of one search.

    Attributes:
        tokens: number of encoded tokens, including [CLS] and [SEP].
        truncated: whether the query was cut at the token limit.
        terms: the distinct terms that the encoder read, in order.
        hits: hits from `offset` on, best first.
        timings_ms: stage -> milliseconds.
        facets: field -> counts.
        text: the query with its typos corrected.
        corrected: unknown word of the query -> its correction.
        explanations: explanations of all hits; None if not requested.
        confidence: confidence of the first hit; None if its score is not a probability.
        unknown: words of the query that no document contains, in order; empty without a lexical index.
        left_out: steps skipped for lack of time, as in `degraded` (docs/search.md): `late`, `snippets`, `rerank_partial`.
    """

    tokens: int
    truncated: bool
    terms: tuple[Term, ...]
    hits: tuple[FoundDocument, ...]
    timings_ms: dict[str, float]
    facets: Mapping[str, FacetCounts]
    text: str
    corrected: Mapping[str, str]
    explanations: Explanations | None = None
    left_out: tuple[str, ...] = ()
    confidence: Confidence | None = None
    unknown: tuple[str, ...] = ()
