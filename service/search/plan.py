"""What a valid search request asks of an index: the request with its defaults, parsed for one open index."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from glow.errors import Fault, FilterError, QueryError
from glow.index import Fusion, Index
from glow.index.columns import COLUMNS, Columns, duration_s, now_s
from glow.index.columns.filters import Expression, count_terms, field_of, parse_filter
from glow.index.columns.masks import FacetRequest, parse_facets
from glow.index.postings import POSTINGS
from glow.index.vectors import VECTORS, SearchParams
from glow.options import describe
from glow.search import (
    DEFAULT_CANDIDATES,
    NO_SYNONYMS,
    Arrangement,
    FilterBoost,
    Match,
    RecencyBoost,
    Reranking,
    Retriever,
    SortKey,
    Synonyms,
    Syntax,
    Typos,
    reads_documents,
)
from glow.text import Highlighting
from glow_service.errors import NotAvailableError, QueryTooLongError
from glow_service.search.request import MAX_FAULTS, BoostBody, HighlightBody, SearchRequest, fault, refusal
from glow_service.settings import Settings

Source = Literal["text", "vector", "like", "browse"]

MAX_CANDIDATES = 1_000
"""Most candidates of a search; FAISS on a GPU finds at most 2,048 neighbors."""
MAX_PAGED = 100_000
"""Most matches that pages reach; a search for neighbors alone reaches its candidates."""
MAX_FILTER_TERMS = 1_000
"""Most conditions, groups and values of a filter."""
MAX_EXPLAINED_HITS = 20
MAX_ANSWER_BYTES = 8 << 20
"""Most bytes of the documents in a response, for a batch in total."""
SCORE = "score"
SHOWN_METADATA = 30
_HIGHLIGHT = HighlightBody(fields=None, fragments=2, fragment_chars=200)

# A search is expensive beyond one of these; docs/performance.md has the table.
PLAIN_HITS = 100
PLAIN_QUERY_CHARS = 4_000
PLAIN_FILTER_TERMS = 200
PLAIN_SNIPPET_CHARS = 200_000
"""Requested characters of snippets of all hits."""


@dataclass(frozen=True, slots=True)
class HighlightCall:
    """Fields and sizes of snippets."""

    fields: tuple[str, ...]
    options: Highlighting


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search request, checked and parsed for one index. Fields that are shown and compared decide the cached response."""

    text: str
    top_k: int  # hits to return, >= 1
    offset: int  # hits to skip, >= 0
    candidates: int  # hits to gather
    params: SearchParams  # how thoroughly to search
    retriever: Retriever = "dense"
    fusion: Fusion | None = None  # how `hybrid` fuses its rankings; None: as the index is tuned
    filter: Expression | None = None  # restricts the documents; None: all
    facets: tuple[FacetRequest, ...] = ()  # fields to count over the candidates
    highlight: HighlightCall | None = None
    explain: bool = False
    leave_one_out: bool = False  # whether to explain also the cosine without each query word
    fields: tuple[str, ...] | None = None
    metadata: tuple[str, ...] | None = None
    max_bytes: int = 0  # most bytes of all hits in total; 0 for no limit
    may_cut: bool = False  # whether hits may be cut to fit
    typos: Typos = "auto"  # whether to correct typos in the query
    match: Match = "auto"  # which documents match
    syntax: Syntax = "auto"  # whether to read phrases, exclusions and fields in the query
    prefix: bool = False  # whether the last word is the start of one
    synonyms: Synonyms = NO_SYNONYMS  # what else counts as words of the query
    arrangement: Arrangement | None = None  # boosts, sorting and grouping of the candidates; None for none
    source: Source = "text"
    vector: tuple[float, ...] | None = None  # L2-normalized, if it is the source
    like: str = ""  # id of a document; "" unless it is the source
    rerank: Reranking | None = None  # how to re-rank the first hits; None: not at all. Needs `index.reranker`
    vectors: bool = False  # whether to return the vector of each hit
    timeout_ms: int = field(default=0, compare=False, repr=False)  # from the request's first byte
    allow_partial: bool = field(default=False, compare=False, repr=False)
    asked_filter: dict[str, Any] | None = field(default=None, compare=False, repr=False)  # for the query log
    filter_terms: int = field(default=0, compare=False, repr=False)

    @property
    def is_expensive(self) -> bool:
        """Whether it takes much longer than an ordinary search, and must not hold up others."""
        snippet_chars = 0
        if self.highlight is not None:
            options = self.highlight.options
            snippet_chars = self.top_k * options.fragments * options.fragment_chars
            snippet_chars *= len(self.highlight.fields)
        return (
            self.explain
            or (self.syntax == "auto" and reads_documents(self.text))
            or self.rerank is not None
            or self.top_k > PLAIN_HITS
            or len(self.text) > PLAIN_QUERY_CHARS
            or self.filter_terms > PLAIN_FILTER_TERMS
            or snippet_chars > PLAIN_SNIPPET_CHARS
        )


def filter_terms_of(request: SearchRequest) -> int:
    """Number of conditions, groups and values of all filters of a request."""
    filters = [request.filter, *(boost.filter for boost in request.boosts or ())]
    return sum(count_terms(each) for each in filters if each is not None)


def plan_search(
    request: SearchRequest, settings: Settings, index: Index, synonyms: Synonyms = NO_SYNONYMS
) -> SearchPlan:
    """Checks a request by the settings and the index; all faults of one kind are reported together."""
    source = _source(request, index)
    retriever = _retriever(request, settings, index) if source == "text" else "dense"
    if source == "text":
        _check_query(request.query or "", settings)
    names, columns = index.preprocessor.schema.names, index[COLUMNS].columns
    if faults := [
        *_range_faults(request, settings, retriever, source),
        *_field_faults(request.fields, names, columns),
    ]:
        raise refusal(faults)
    _require_served(request, retriever, index)
    shown, metadata = names, None
    if request.fields is not None:
        shown = tuple(dict.fromkeys(name for name in request.fields if name in names))
        metadata = tuple(dict.fromkeys(name for name in request.fields if name not in names)) or None
    expression = request.filter
    return SearchPlan(
        text=(request.query or "") if source == "text" else "",
        top_k=request.top_k,
        offset=request.offset,
        candidates=_candidates(request, retriever, source),
        params=SearchParams(request.params.ef_search, request.params.nprobe, request.params.exact),
        retriever=retriever,
        fusion=_fusion(request, retriever, index.fusion),
        filter=None
        if expression is None or (not expression and source != "browse")
        else parse_filter(expression, columns, MAX_FILTER_TERMS),
        facets=parse_facets([facet.model_dump() for facet in request.facets or ()], columns),
        highlight=_highlight(request, shown, index),
        explain=_explains(request),
        leave_one_out=not isinstance(request.explain, bool | None) and request.explain.leave_one_out,
        fields=shown,
        metadata=metadata,
        max_bytes=MAX_ANSWER_BYTES,
        may_cut=request.allow_truncated is not False,
        typos=request.typos,
        match=request.match,
        syntax=request.syntax,
        prefix=request.prefix,
        synonyms=synonyms,
        arrangement=_arrangement(request, columns),
        source=source,
        vector=_unit_vector(request.vector or (), index) if source == "vector" else None,
        like=request.like.id if request.like is not None else "",
        rerank=_rerank(request),
        vectors=request.vectors,
        timeout_ms=request.timeout_ms or settings.default_timeout_ms,
        allow_partial=request.allow_partial,
        asked_filter=request.filter,
        filter_terms=filter_terms_of(request),
    )


# The source: a text, a vector, a document, or every document that a filter allows.


def _source(request: SearchRequest, index: Index) -> Source:
    for name in ("like", "vectors"):
        if getattr(request, name) and (detail := index.refusals["like"]):
            raise NotAvailableError(f"/{name}: {detail}", [Fault(f"/{name}", detail)])
    has_text = bool(request.query and request.query.strip())
    sources = [name for name in ("vector", "like") if getattr(request, name) is not None]
    if not sources and (has_text or request.filter is None):
        if request.query is None:
            raise fault("/query", "required, but missing")
        return "text"
    if sources and (has_text or len(sources) > 1):
        both = " and ".join(["'query'"] * has_text + [f"'{name}'" for name in sources])
        raise fault(f"/{sources[-1]}", f"found {both}; send one of 'query', 'vector' and 'like'")
    if request.retriever not in ((None, "dense") if sources else (None,)):
        raise fault("/retriever", f"{request.retriever!r} needs a 'query'; remove it")
    for name in ("explain", "fusion"):
        if getattr(request, name):
            raise fault(f"/{name}", "needs a 'query'; remove it")
    if not sources:
        return "browse"
    return "vector" if sources == ["vector"] else "like"


def _unit_vector(values: Sequence[float], index: Index) -> tuple[float, ...]:
    numbers, dimensions = np.array(values, np.float64), index[VECTORS].dimensions
    if len(numbers) != dimensions:
        raise fault("/vector", f"this index has {dimensions} dimensions, found {len(numbers)}")
    length = float(np.linalg.norm(numbers))
    if not np.isfinite(length) or length < 1e-12:
        raise fault("/vector", "expected finite numbers that are not all 0")
    return tuple((numbers / length).tolist())


def _retriever(request: SearchRequest, settings: Settings, index: Index) -> Retriever:
    """The retriever; the default is never one that the index lacks."""
    if request.retriever is not None:
        return request.retriever
    default = "hybrid" if settings.default_retriever == "auto" else settings.default_retriever
    return "dense" if not index.holds(POSTINGS) else default


# Faults of plain values.


def _check_query(query: str, settings: Settings) -> None:
    if len(query) > settings.max_query_chars:
        raise QueryTooLongError(
            f"the query has {len(query)} characters, expected at most {settings.max_query_chars}; shorten it"
        )
    if "\0" in query:
        raise QueryError("the query contains a NUL character; remove it")
    if not query.strip():
        raise QueryError("the query is empty; send some text")


def _range_faults(
    request: SearchRequest, settings: Settings, retriever: Retriever, source: Source
) -> list[Fault]:
    faults = []
    if request.top_k > settings.max_top_k:
        faults.append(Fault("/top_k", f"expected at most {settings.max_top_k}, found {request.top_k}"))
    if request.timeout_ms is not None and request.timeout_ms > settings.max_timeout_ms:
        detail = f"expected at most {settings.max_timeout_ms}, found {request.timeout_ms}"
        faults.append(Fault("/timeout_ms", detail))
    end, neighbors = request.offset + request.top_k, _only_neighbors(request, retriever, source)
    if request.candidates is not None and request.candidates > MAX_CANDIDATES:
        detail = f"expected at most {MAX_CANDIDATES}, found {request.candidates}"
        faults.append(Fault("/candidates", detail))
    if neighbors and request.candidates is not None and end > request.candidates:
        detail = f"expected {end} (offset + top_k) to {MAX_CANDIDATES}, found {request.candidates}"
        faults.append(Fault("/candidates", detail))
    elif end > (most := MAX_CANDIDATES if neighbors else MAX_PAGED):
        faults.append(Fault("/offset", f"offset + top_k is {end}, expected at most {most}"))
    return faults


def _only_neighbors(request: SearchRequest, retriever: Retriever, source: Source) -> bool:
    """Whether a search reaches its candidates alone, because words do not tell what else matches."""
    return source in ("vector", "like") or (source == "text" and retriever in ("dense", "learned-sparse"))


def _candidates(request: SearchRequest, retriever: Retriever, source: Source) -> int:
    end = request.offset + request.top_k
    needed = end if _only_neighbors(request, retriever, source) else 0
    return request.candidates or max(DEFAULT_CANDIDATES, needed)


def _field_faults(fields: list[str] | None, names: tuple[str, ...], columns: Columns) -> list[Fault]:
    """Faults of names that are neither fields nor metadata of this index."""
    if not fields:
        return []
    metadata = {**columns.fields, **columns.left_out}
    known = ", ".join((*names, *list(metadata)[:SHOWN_METADATA]))
    return [
        Fault(f"/fields/{position}", f"unknown field {name!r:.80}; this index has {known}")
        for position, name in enumerate(fields)
        if name not in names and name not in metadata
    ][:MAX_FAULTS]


# Optional features.


def _require_served(request: SearchRequest, retriever: Retriever, index: Index) -> None:
    """Raises one error for all features that the index cannot serve."""
    details = {"/retriever": index.refusals[retriever]}
    if request.explain and index.explainer is None:
        details["/explain"] = "this index has no explain graphs; build it again without --no-explain"
    if request.rerank:
        details["/rerank"] = index.refusals["rerank"]
    if faults := [Fault(pointer, detail) for pointer, detail in details.items() if detail]:
        raise NotAvailableError("; ".join(f"{each.pointer}: {each.detail}" for each in faults), faults)


def _fusion(request: SearchRequest, retriever: Retriever, own: Fusion) -> Fusion | None:
    """The index's fusion with the request's changes. Given weights replace all: only their ratio matters."""
    if request.fusion is None:
        return None
    if retriever != "hybrid":
        raise fault("/fusion", f"only the retriever 'hybrid' fuses, found {retriever!r}; remove 'fusion'")
    changes = request.fusion.model_dump(exclude_none=True)
    if request.fusion.weights is not None:
        changes["weights"] = {"dense": 0.0, "lexical": 0.0, **request.fusion.weights}
    try:
        return Fusion.model_validate({**own.model_dump(), **changes})
    except ValidationError as error:
        raise fault("/fusion", describe(error)) from error


def _highlight(request: SearchRequest, shown: tuple[str, ...], index: Index) -> HighlightCall | None:
    if not request.highlight:
        return None
    highlight = _HIGHLIGHT if request.highlight is True else request.highlight
    schema = index.preprocessor.schema
    names = (*schema.names, *(index.base[POSTINGS].header.fields.text if index.holds(POSTINGS) else ()))
    faults = [
        Fault(f"/highlight/fields/{place}", f"unknown field {name!r:.80}; this index has {', '.join(names)}")
        for place, name in enumerate(highlight.fields or ())
        if name not in names
    ]
    if faults:
        raise refusal(faults)
    fields = (*shown, schema.body) if highlight.fields is None else highlight.fields
    options = Highlighting(highlight.fragments, highlight.fragment_chars)
    return HighlightCall(tuple(dict.fromkeys(fields)), options)


def _explains(request: SearchRequest) -> bool:
    if request.explain and request.top_k > MAX_EXPLAINED_HITS:
        detail = f"explains at most {MAX_EXPLAINED_HITS} hits, found top_k {request.top_k}; request fewer"
        raise fault("/explain", detail)
    return bool(request.explain)


def _rerank(request: SearchRequest) -> Reranking | None:
    if not request.rerank:
        return None
    if not (request.query or "").strip():
        raise fault("/rerank", "re-ranking needs a text query; give 'query', or remove 'rerank'")
    return Reranking(50 if request.rerank is True else request.rerank.depth)


def _arrangement(request: SearchRequest, columns: Columns) -> Arrangement | None:
    if (request.min_score, request.sort, request.boosts, request.group_by) == (None, None, None, None):
        return None
    for place, key in enumerate(request.sort or ()):
        if key.field != SCORE:
            field_of(columns, key.field, f"/sort/{place}/field")
    boosts = [_boost(boost, columns, f"/boosts/{place}") for place, boost in enumerate(request.boosts or ())]
    group, size = "", 1
    if request.group_by is not None:
        group, size = request.group_by.field, request.group_by.size
        field_of(columns, group, "/group_by/field")
    sort = tuple(SortKey(key.field, key.order == "desc") for key in request.sort or ())
    return Arrangement(tuple(boosts), request.min_score, sort, group, size)


def _boost(boost: BoostBody, columns: Columns, pointer: str) -> FilterBoost | RecencyBoost:
    if (boost.filter is None) == (boost.recency is None):
        raise fault(pointer, "expected exactly one of 'filter' and 'recency'")
    if boost.filter is not None:
        expression = parse_filter(boost.filter, columns, MAX_FILTER_TERMS, pointer=f"{pointer}/filter")
        return FilterBoost(expression, boost.factor)
    recency = boost.recency
    assert recency is not None  # noqa: S101 - exactly one of both is set
    field_of(columns, recency.field, f"{pointer}/recency/field")
    if "date" not in columns.fields[recency.field].parts:
        detail = f"field {recency.field!r:.80} has no dates (docs/filters.md explains their format)"
        raise FilterError([Fault(f"{pointer}/recency/field", detail)])
    half_life_s = duration_s(recency.half_life)
    if not half_life_s:
        detail = f"expected a number and a unit such as '30d', found {recency.half_life!r:.40}"
        raise fault(f"{pointer}/recency/half_life", detail)
    return RecencyBoost(recency.field, recency.weight, float(half_life_s), now_s())
