"""What a search is asked for and what it answers, once a request was checked and before it is JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from glow.index import Fusion
from glow.index.columns.filters import Expression, FacetCounts, FacetRequest
from glow.index.passages import FoundPassage
from glow.index.vectors import SearchParams
from glow.records import Document
from glow.search import Arrangement, Confidence, Reranking, Retriever, Typos
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
    """Bounds of a search request, and what one that names nothing gets; `docs/reference/settings.md` describes each."""

    max_query_chars: int
    max_top_k: int
    max_candidates: int
    default_candidates: int
    max_filter_terms: int
    max_explained_hits: int
    max_answer_bytes: int
    max_timeout_ms: int
    default_timeout_ms: int
    default_retriever: Literal["auto", "dense", "lexical", "learned", "hybrid"]
    late_interaction: bool


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
        fields, metadata: names of what to return of each document; None for all.
        max_bytes: most bytes of all hits together; 0 for no bound.
        may_cut: whether hits may be cut to fit.
        typos: whether slips in the query are corrected.
        arrangement: what becomes of the candidates; None: they stay as they were found.
        source: what is searched for: the text, the vector, what is like a document, or all that the filter allows.
        vector: of the index' own dimensions, L2-normalised; None unless it is the source.
        like: id of a document; "" unless it is the source.
        rerank: how the first hits are read again; None: they are not. Needs `index.reranker`.
        late: whether a hybrid search compares tokens, if the index has any.
        vectors: whether the vector of each hit is returned.
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
    """A word of the query: its idf, the weight that the query tower read (both finite, >= 0), and whether documents hold it."""

    word: str
    idf: float
    weight: float
    known: bool


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A hit with what the store holds of it.

    Attributes:
        score: what ranks; the probability that it answers the query if the answer has a confidence.
        row: of the document in the index.
        parts: `dense` (cosine, in [-1, 1]), `lexical` or `learned` (>= 0), `late` (about -1 to 1), `fused` or `rerank` (of any sign) -> that
            part's score, if it is known.
        document: as stored, with the fields and metadata that were asked for.
        passage: its best passage, where the index has passages and vectors found it.
        truncated: names of the parts of the document that were cut or left out to fit.
        highlights: field -> snippets as HTML; None where not asked for.
        because: word of the query -> the document's word that it counts for, of those that the document does not hold; only where
            snippets or reasons were asked for.
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
    """What one search found.

    Attributes:
        tokens: tokens that the tower read, [CLS] and [SEP] counted.
        truncated: whether words were lost to the query budget.
        terms: the different words that the tower read, in order.
        hits: best first, from `offset` on.
        timings_ms: stage -> milliseconds.
        facets: field -> counts.
        text: the query as it was searched.
        corrected: unknown word of the query -> what was searched in its place.
        explanations: why each hit was found; None where not asked for.
        confidence: how sure the first hit is; None if its score is no probability.
        unknown: words of the query that no document holds, in order; none if the index has no words.
        left_out: what there was no time for: `late`, no tokens were compared; `snippets`, words were not looked for by meaning; `rerank_partial`, not all hits were read again.
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
