"""Checks the JSON of a search request: gives a search call, or all errors."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from glow.errors import QueryError
from glow.index import Index
from glow.index.columns import COLUMNS, Columns
from glow.index.columns.filters import count_terms
from glow.index.postings import POSTINGS
from glow.index.vectors import SearchParams
from glow.search import Retriever
from glow_service.errors import Fault, QueryTooLongError, RequestError
from glow_service.search.calls import SearchCall, SearchLimits
from glow_service.search.costs import MOST_PLAIN, request_cost
from glow_service.search.features import check_features
from glow_service.search.shapes import SearchBody
from glow_service.search.sources import check_source, unit_vector
from glow_service.search.work_pool import WorkPoolName

__all__ = ["MAX_FAULTS", "CheckedSearch", "check_search", "faults_of"]

MAX_FAULTS = 20
SHOWN_METADATA = 30
_KINDS = frozenset(("bool", "int", "float", "str", "none"))
_SHORT = reprlib.Repr()
"""Shortens the representation of found values."""
_SHORT.maxstring = _SHORT.maxother = 80


@dataclass(frozen=True, slots=True)
class CheckedSearch:
    """A valid search request.

    Attributes:
        call: the search.
        timeout_ms: time limit from the request's first byte, in milliseconds.
        allow_partial: whether partial results are allowed after the deadline.
        filter: the received filter, for the query log; None for none.
        filter_terms: number of conditions, groups and values of its filters.
    """

    call: SearchCall
    timeout_ms: int
    allow_partial: bool
    filter: dict[str, Any] | None = None
    filter_terms: int = 0

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
    """Checks a request's body; all errors of one kind are reported together.

    Raises:
        NotAvailableError: if it needs a feature that the index lacks.
        RequestError: if a field is unknown, of a wrong type, or out of range.
        FilterError: if the filter or a facet does not fit the metadata of the index.
        QueryError: if the query is blank, contains NUL, or is too long.
    """
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
    """Converts pydantic's errors of a body to a `RequestError`.

    Args:
        error: pydantic's error.
        body: the received body; pointers refer to places in it, or to a missing member.
    """
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
