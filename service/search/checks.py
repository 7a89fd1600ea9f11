"""Checks of a search request, before any work."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from glow.errors import Fault, FilterError, QueryError
from glow.index import Fusion, Index
from glow.index.columns import COLUMNS, Columns, duration_s, now_s
from glow.index.columns.filters import (
    Expression,
    count_terms,
    field_of,
    parse_filter,
)
from glow.index.columns.masks import FacetRequest, parse_facets
from glow.index.postings import POSTINGS
from glow.index.vectors import SearchParams
from glow.options import describe
from glow.search import Arrangement, FilterBoost, RecencyBoost, Reranking, Retriever, SortKey
from glow.text import Highlighting
from glow_service.errors import NotAvailableError, QueryTooLongError, RequestError
from glow_service.search.calls import (
    MOST_PLAIN,
    ExplainCall,
    HighlightCall,
    SearchCall,
    SearchLimits,
    request_cost,
)
from glow_service.search.shapes import BoostBody, FusionBody, HighlightBody, RerankBody, SearchBody
from glow_service.search.sources import check_source, unit_vector
from glow_service.search.work_pool import WorkPoolName

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
    """Checks the optional features of a request."""
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
    asked = RerankBody(depth=50) if body.rerank is True else body.rerank
    if not (body.query or "").strip():
        detail = "re-ranking needs a text query; give 'query', or remove 'rerank'"
        raise RequestError(f"/rerank: {detail}", [Fault("/rerank", detail)])
    return Reranking(asked.depth)


def _explain(body: SearchBody, limits: SearchLimits) -> ExplainCall | None:
    if not body.explain:
        return None
    if body.top_k > limits.max_explained_hits:
        detail = f"explains at most {limits.max_explained_hits} hits, found top_k {body.top_k}; request fewer"
        raise RequestError(f"/explain: {detail}", [Fault("/explain", detail)])
    return ExplainCall(leave_one_out=body.explain is not True and body.explain.leave_one_out)


def _arrangement(body: SearchBody, limits: SearchLimits, columns: Columns) -> Arrangement | None:
    """The requested arrangement of the candidates; None if there is none."""
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


# Checks the JSON of a search request: gives a search call, or all errors.

MAX_FAULTS = 20
SHOWN_METADATA = 30
_KINDS = frozenset(("bool", "int", "float", "str", "none"))
_SHORT = reprlib.Repr()
"""Shortens the representation of found values."""
_SHORT.maxstring = _SHORT.maxother = 80


@dataclass(frozen=True, slots=True)
class CheckedSearch:
    """A valid search request."""

    call: SearchCall
    timeout_ms: int  # time limit from the request's first byte, in milliseconds
    allow_partial: bool  # whether partial results are allowed after the deadline
    filter: dict[str, Any] | None = None  # the received filter, for the query log; None for none
    filter_terms: int = 0  # number of conditions, groups and values of its filters

    @property
    def cost(self) -> int:
        """Cost of the search, >= 1."""
        return request_cost(self.call, self.filter_terms)

    @property
    def work_pool(self) -> WorkPoolName:
        """Worker pool: `bulk` if it is expensive without re-ranking, otherwise `rerank` or `plain`."""
        if request_cost(replace(self.call, rerank=None), self.filter_terms) > MOST_PLAIN:
            return "bulk"
        return "plain" if self.call.rerank is None else "rerank"


def check_search(value: dict[str, Any], limits: SearchLimits, index: Index) -> CheckedSearch:
    """Checks a request's body; all errors of one kind are reported together."""
    body = _parse(value)
    source = check_source(body, index)
    retriever = _retriever(body, limits, index) if source == "text" else "dense"
    query = body.query or ""
    if source == "text":
        _check_query(query, limits)
    names = index.preprocessor.schema.names
    faults = [*_range_faults(body, limits), *_field_faults(body.fields, names, index[COLUMNS].columns)]
    if faults:
        raise RequestError(_sentence(faults), faults)
    features = check_features(body, retriever, _shown_fields(body.fields, names), limits, index)
    call = SearchCall(
        query if source == "text" else "",
        body.top_k,
        body.offset,
        _candidates(body, limits),
        SearchParams(body.params.ef_search, body.params.nprobe, body.params.exact),
        retriever,
        features.fusion,
        features.filter,
        features.facets,
        features.highlight,
        features.explain,
        _shown_fields(body.fields, names),
        _shown_metadata(body.fields, names),
        limits.max_answer_bytes,
        body.allow_truncated is not False,
        body.typos,
        features.arrangement,
        source,
        unit_vector(body.vector, index) if source == "vector" else None,
        body.like.id if body.like is not None else "",
        features.rerank,
        features.late,
        body.vectors,
    )
    timeout_ms = body.timeout_ms or limits.default_timeout_ms
    terms = _filter_terms(body)
    return CheckedSearch(call, timeout_ms, body.allow_partial, body.filter, terms)


def _shown_fields(asked: list[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    return names if asked is None else tuple(dict.fromkeys(name for name in asked if name in names))


def _shown_metadata(asked: list[str] | None, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names of the requested metadata; None for all."""
    return tuple(dict.fromkeys(name for name in asked or () if name not in names)) or None


def _filter_terms(body: SearchBody) -> int:
    """Number of terms of all filters of a request."""
    filters = [body.filter, *(boost.filter for boost in body.boosts or ())]
    return sum(count_terms(each) for each in filters if each is not None)


def _retriever(body: SearchBody, limits: SearchLimits, index: Index) -> Retriever:
    """The retriever; the default is never one that the index lacks."""
    if body.retriever is not None:
        return body.retriever
    wanted = "hybrid" if limits.default_retriever == "auto" else limits.default_retriever
    return "dense" if not index.holds(POSTINGS) else wanted


def _parse(value: dict[str, Any]) -> SearchBody:
    try:
        return SearchBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error


def faults_of(error: ValidationError, body: Any) -> RequestError:
    """Converts pydantic's errors of a body to a `RequestError`, whose pointers refer to places in the body."""
    errors = error.errors(include_url=False, include_context=False)
    faults: dict[str, Fault] = {}
    for fault in errors:
        pointer, is_inner = _place(fault["loc"], body)
        # If a value may have several types, the error inside one of them is the most useful.
        if is_inner or pointer not in faults:
            faults.setdefault(pointer, Fault(pointer, _detail(fault)))
    outer = {pointer for pointer in faults if any(other.startswith(f"{pointer}/") for other in faults)}
    listed = [fault for pointer, fault in faults.items() if pointer not in outer][:MAX_FAULTS]
    return RequestError(_sentence(listed), listed)


def _place(location: tuple[int | str, ...], body: Any) -> tuple[str, bool]:
    """The JSON pointer of pydantic's location, without names of types and keys, and whether it is inside the body."""
    parts: list[int | str] = []
    value, is_inner = body, False
    for at, part in enumerate(location):
        is_member = isinstance(value, Mapping) and part in value
        is_item = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_member or is_item:
            value = value[part]
            parts.append(part)
            is_inner = True
        elif at == len(location) - 1 and isinstance(value, Mapping) and not _is_kind(part):
            parts.append(part)
    return _pointer(tuple(parts)), is_inner


def _is_kind(part: int | str) -> bool:
    """Whether a part of pydantic's location is the name of a type or a key, not of a member."""
    text = str(part)
    return text in _KINDS or text.startswith(("function-", "[", "list[", "dict[")) or text.endswith("Body")


def _check_query(query: str, limits: SearchLimits) -> None:
    if len(query) > limits.max_query_chars:
        raise QueryTooLongError(
            f"the query has {len(query)} characters, expected at most {limits.max_query_chars}; shorten it"
        )
    if "\0" in query:
        raise QueryError("the query contains a NUL character; remove it")
    if not query.strip():
        raise QueryError("the query is empty; send some text")


def _range_faults(body: SearchBody, limits: SearchLimits) -> list[Fault]:
    faults = []
    if body.top_k > limits.max_top_k:
        faults.append(Fault("/top_k", f"expected at most {limits.max_top_k}, found {body.top_k}"))
    if body.timeout_ms is not None and body.timeout_ms > limits.max_timeout_ms:
        detail = f"expected at most {limits.max_timeout_ms}, found {body.timeout_ms}"
        faults.append(Fault("/timeout_ms", detail))
    end = body.offset + body.top_k
    if body.candidates is None:
        if end > limits.max_candidates:
            detail = f"offset + top_k is {end}, expected at most {limits.max_candidates}"
            faults.append(Fault("/offset", detail))
    elif not end <= body.candidates <= limits.max_candidates:
        detail = f"expected {end} (offset + top_k) to {limits.max_candidates}, found {body.candidates}"
        faults.append(Fault("/candidates", detail))
    return faults


def _field_faults(fields: list[str] | None, names: tuple[str, ...], columns: Columns) -> list[Fault]:
    """Errors of names that are neither fields nor metadata of this index."""
    if not fields:
        return []
    metadata = {**columns.fields, **columns.left_out}
    known = ", ".join((*names, *list(metadata)[:SHOWN_METADATA]))
    return [
        Fault(f"/fields/{position}", f"unknown field {name!r:.80}; this index has {known}")
        for position, name in enumerate(fields)
        if name not in names and name not in metadata
    ][:MAX_FAULTS]


def _candidates(body: SearchBody, limits: SearchLimits) -> int:
    return body.candidates or max(limits.default_candidates, body.offset + body.top_k)


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + str(part)[:80].replace("~", "~0").replace("/", "~1") for part in location)


def _detail(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "missing":
        return "required, but missing"
    if fault["type"] == "extra_forbidden":
        return "unknown field; /openapi.json lists the known ones"
    return f"{fault['msg']}, found {_SHORT.repr(fault['input']):.80}"


def _sentence(faults: list[Fault]) -> str:
    return "; ".join(f"{fault.pointer or 'body'}: {fault.detail}" for fault in faults[:3]) + (
        f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    )
