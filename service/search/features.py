"""Checks the optional features of a search against the components of the index."""

from dataclasses import dataclass

from pydantic import ValidationError

from glow.errors import FilterError
from glow.index import Fusion, Index
from glow.index.columns import COLUMNS, Columns, duration_s, now_s
from glow.index.columns.filters import Expression, field_of, parse_filter
from glow.index.columns.masks import FacetRequest, parse_facets
from glow.options import describe
from glow.search import Arrangement, FilterBoost, RecencyBoost, Reranking, Retriever, SortKey
from glow.text import Highlighting
from glow_service.errors import Fault, NotAvailableError, RequestError
from glow_service.search.calls import ExplainCall, HighlightCall, SearchLimits
from glow_service.search.shapes import BoostBody, FusionBody, HighlightBody, RerankBody, SearchBody

__all__ = ["Features", "check_features"]

_NO_HIGHLIGHT = HighlightBody(fields=None, fragments=2, fragment_chars=200)
SCORE = "score"
ORDER = ("/retriever", "/explain", "/rerank")
"""Order of errors in a response."""


@dataclass(frozen=True, slots=True)
class Features:
    """The fields of a `SearchCall` with the same names."""

    fusion: Fusion | None = None
    filter: Expression | None = None
    facets: tuple[FacetRequest, ...] = ()
    highlight: HighlightCall | None = None
    explain: ExplainCall | None = None
    arrangement: Arrangement | None = None
    rerank: Reranking | None = None
    late: bool = True


def check_features(
    body: SearchBody, retriever: Retriever, fields: tuple[str, ...], limits: SearchLimits, index: Index
) -> Features:
    """Checks the optional features of a request.

    Args:
        body: the parsed body.
        retriever: the retriever.
        fields: names of the returned fields.
        limits: limits of requests.
        index: the index to search.

    Raises:
        NotAvailableError: if the index lacks requested features; the message lists them, and how to build them.
        RequestError: if members cannot be combined.
        FilterError: if the filter or a facet does not fit the metadata of the index.
    """
    _require_served(body, retriever, index)
    if body.fusion is not None and retriever != "hybrid":
        detail = f"only the retriever 'hybrid' fuses, found {retriever!r}; remove 'fusion'"
        raise RequestError(f"/fusion: {detail}", [Fault("/fusion", detail)])
    arrangement = _arrangement(body, limits, index[COLUMNS].columns)
    plain = (body.filter, body.facets, body.fusion, arrangement) == (None, None, None, None)
    late = limits.late_interaction if body.rerank is None else body.rerank is not False
    if plain and not (body.highlight or body.explain or body.rerank):
        return Features(late=late)
    return Features(
        fusion=None if body.fusion is None else _fusion(body.fusion, index.fusion),
        filter=_filter(body, limits, index[COLUMNS].columns),
        facets=_facets(body, index[COLUMNS].columns),
        highlight=_highlight(body, fields, index),
        explain=_explain(body, limits),
        arrangement=arrangement,
        rerank=_rerank(body, retriever, index),
        late=late,
    )


def _require_served(body: SearchBody, retriever: Retriever, index: Index) -> None:
    """Raises one error for all features that the index cannot serve."""
    asked: dict[str, str] = {"/retriever": retriever}
    if body.rerank:
        asked["/rerank"] = "late" if body.rerank is True and index.reranker is None else "rerank"
    lacking = [
        Fault(pointer, refusal) for pointer, name in asked.items() if (refusal := index.refusals[name])
    ]
    if body.explain and index.explainer is None:
        detail = "this index has no explain graphs; build it again without --no-explain"
        lacking.append(Fault("/explain", detail))
    if lacking:
        lacking.sort(key=lambda fault: ORDER.index(fault.pointer))
        sentence = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in lacking)
        raise NotAvailableError(sentence, lacking)


def _fusion(body: FusionBody, own: Fusion) -> Fusion:
    """The index's fusion with the request's changes. Given weights replace all: only their ratio matters."""
    changes = body.model_dump(exclude_none=True)
    if body.weights is not None:
        changes["weights"] = {"dense": 0.0, "lexical": 0.0, **body.weights}
    try:
        return Fusion.model_validate({**own.model_dump(), **changes})
    except ValidationError as error:
        detail = describe(error)
        raise RequestError(f"/fusion: {detail}", [Fault("/fusion", detail)]) from error


def _filter(body: SearchBody, limits: SearchLimits, columns: Columns) -> Expression | None:
    if body.filter is None:
        return None
    return parse_filter(body.filter, columns, limits.max_filter_terms)


def _facets(body: SearchBody, columns: Columns) -> tuple[FacetRequest, ...]:
    if body.facets is None:
        return ()
    return parse_facets([facet.model_dump() for facet in body.facets], columns)


def _highlight(body: SearchBody, fields: tuple[str, ...], index: Index) -> HighlightCall | None:
    if not body.highlight:
        return None
    asked = _NO_HIGHLIGHT if body.highlight is True else body.highlight
    names = index.preprocessor.schema.names
    own = (*fields, index.preprocessor.schema.body) if asked.fields is None else asked.fields
    chosen = tuple(dict.fromkeys(own))
    faults = [
        Fault(f"/highlight/fields/{place}", f"unknown field {name!r:.80}; this index has {', '.join(names)}")
        for place, name in enumerate(asked.fields or ())
        if name not in names
    ]
    if faults:
        raise RequestError(f"{faults[0].pointer}: {faults[0].detail}", faults)
    return HighlightCall(chosen, Highlighting(asked.fragments, asked.fragment_chars))


def _rerank(body: SearchBody, retriever: Retriever, index: Index) -> Reranking | None:
    if not body.rerank:
        return None
    if index.reranker is None:
        if retriever != "hybrid":
            detail = f"without a re-ranker, this index re-ranks only hybrid searches, found {retriever!r}; remove 'rerank'"
            raise RequestError(f"/rerank: {detail}", [Fault("/rerank", detail)])
        return None
    asked = RerankBody(depth=50, method="cross-encoder") if body.rerank is True else body.rerank
    known = index.reranker.shape.methods
    if not (body.query or "").strip():
        detail = "re-ranking needs a text query; give 'query', or remove 'rerank'"
        raise RequestError(f"/rerank: {detail}", [Fault("/rerank", detail)])
    if asked.method not in known:
        detail = f"this index's re-ranker has the methods {', '.join(known)}, found {asked.method!r}"
        raise NotAvailableError(f"/rerank/method: {detail}", [Fault("/rerank/method", detail)])
    return Reranking(asked.depth, asked.method)


def _explain(body: SearchBody, limits: SearchLimits) -> ExplainCall | None:
    if not body.explain:
        return None
    if body.top_k > limits.max_explained_hits:
        detail = f"explains at most {limits.max_explained_hits} hits, found top_k {body.top_k}; request fewer"
        raise RequestError(f"/explain: {detail}", [Fault("/explain", detail)])
    return ExplainCall(leave_one_out=body.explain is not True and body.explain.leave_one_out)


def _arrangement(body: SearchBody, limits: SearchLimits, columns: Columns) -> Arrangement | None:
    """The requested arrangement of the candidates; None if there is none.

    Raises:
        RequestError: if a boost does not have exactly one of `filter` and `recency`, or a half-life is invalid.
        FilterError: if a field is unknown, or a filter is invalid for the index.
    """
    if (body.min_score, body.sort, body.boosts, body.group_by) == (None, None, None, None):
        return None
    sort, boosts, group = [], [], ""
    for place, key in enumerate(body.sort or ()):
        if key.field != SCORE:
            _require_field(columns, key.field, f"/sort/{place}/field")
        sort.append(SortKey(key.field, key.order == "desc"))
    for place, boost in enumerate(body.boosts or ()):
        boosts.append(_boost(boost, columns, limits, f"/boosts/{place}"))
    if body.group_by is not None:
        group = body.group_by.field
        _require_field(columns, group, "/group_by/field")
    size = body.group_by.size if body.group_by is not None else 1
    return Arrangement(tuple(boosts), body.min_score, tuple(sort), group, size)


def _boost(
    boost: BoostBody, columns: Columns, limits: SearchLimits, pointer: str
) -> FilterBoost | RecencyBoost:
    if (boost.filter is None) == (boost.recency is None):
        detail = "expected exactly one of 'filter' and 'recency'"
        raise RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])
    if boost.filter is not None:
        expression = parse_filter(boost.filter, columns, limits.max_filter_terms, pointer=f"{pointer}/filter")
        return FilterBoost(expression, boost.factor)
    recency = boost.recency
    assert recency is not None  # noqa: S101 - exactly one of both is set
    _require_field(columns, recency.field, f"{pointer}/recency/field")
    if "date" not in columns.fields[recency.field].parts:
        detail = f"field {recency.field!r:.80} has no dates (docs/filters.md explains their format)"
        raise FilterError([Fault(f"{pointer}/recency/field", detail)])
    half_life_s = duration_s(recency.half_life)
    if not half_life_s:
        detail = f"expected a number and a unit such as '30d', found {recency.half_life!r:.40}"
        raise RequestError(
            f"{pointer}/recency/half_life: {detail}", [Fault(f"{pointer}/recency/half_life", detail)]
        )
    return RecencyBoost(recency.field, recency.weight, float(half_life_s), now_s())


def _require_field(columns: Columns, name: str, pointer: str) -> None:
    field_of(columns, name, pointer)
