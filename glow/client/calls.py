"""One function per route: the request to send, and how to read its response. They are the methods of both clients."""

import json
import sys
from array import array
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import httpx

from glow.client.errors import InvalidResponseError, ServiceError, problem_in, problem_of, record_of
from glow.contract import (
    BatchItem,
    DocumentResult,
    DocumentsResult,
    EmbeddingsResult,
    ExplainResult,
    FeedbackResult,
    IndexName,
    Info,
    ListedDocument,
    OperationResult,
    SearchResult,
    SuggestResult,
)
from glow.contract import BatchResult as ReceivedBatch
from glow.errors import ConfigError
from glow.records import Document


class PagedOptions(TypedDict, total=False):
    """Options of a paged search; an option that is None is not sent.

    Attributes:
        offset: number of hits to skip.
        candidates: number of hits to retrieve; pages of one ranking need the same number.
        retriever: how to find candidates.
        vector: query vector of the index's dimensions, in place of a query.
        like: document in place of a query: `{"id": "d42"}`.
        typos: `off` searches the query as it is typed.
        match: which documents match: with `all` words, with `any`, or `auto`.
        syntax: `plain` reads no phrases and exclusions.
        prefix: whether the last word is the start of one.
        fusion: how `hybrid` fuses: `{"method": "convex" | "rrf", "k": 60, "weights": {"dense": 0.7, "lexical": 0.3}}`.
        rerank: True, or `{"depth": 50}`.
        filter: `{"price": 5, "lang": ["en", "de"], "year": {"gte": 2000, "lt": 2010}}`, and more in docs/filters.md.
        min_score: lowest score of a hit.
        sort: `["-year", "score"]`, or objects such as `{"field": "year", "order": "desc"}`.
        boosts: `[{"filter": {…}, "factor": 2}, {"recency": {"field": "published", "half_life": "30d"}}]`.
        group_by: `{"field": "author", "size": 1}`.
        fields: names of the fields and metadata to return; default: all.
        facets: metadata fields to count, by name or as `{"field": "lang", "limit": 10}`.
        highlight: True, or `{"fields": […], "fragments": 2, "fragment_chars": 200}`.
        vectors: True: return the stored vector of each hit.
        explain: True, or `{"leave_one_out": True}`.
        params: `{"ef_search": 64, "nprobe": 16, "exact": False}`.
        timeout_ms: the service's deadline, in milliseconds.
        allow_partial: after the deadline, return partial results.
        allow_truncated: False: fail if the response would be too large; otherwise hits are cut and marked.
    """

    offset: int | None
    candidates: int | None
    retriever: Literal["dense", "lexical", "learned-sparse", "hybrid"] | None
    vector: Sequence[float] | None
    like: Mapping[str, Any] | None
    typos: Literal["auto", "off"] | None
    match: Literal["auto", "all", "any"] | None
    syntax: Literal["auto", "plain"] | None
    prefix: bool | None
    fusion: Mapping[str, Any] | None
    rerank: bool | Mapping[str, Any] | None
    filter: Mapping[str, Any] | None
    min_score: float | None
    sort: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
    boosts: Sequence[Mapping[str, Any]] | None
    group_by: Mapping[str, Any] | None
    fields: Sequence[str] | None
    facets: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
    highlight: bool | Mapping[str, Any] | None
    vectors: bool | None
    explain: bool | Mapping[str, Any] | None
    params: Mapping[str, Any] | None
    timeout_ms: int | None
    allow_partial: bool | None
    allow_truncated: bool | None


class SearchOptions(PagedOptions, total=False):
    """Options of one search.

    Attributes:
        top_k: hits to return.
    """

    top_k: int | None


class SearchRequest(SearchOptions, total=False):
    """One search of a batch: its own options, and a query unless they give a vector or a document."""

    query: str | None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The response to a batch of searches.

    Attributes:
        request_id: identifies the whole batch in the service's log.
        took_ms: duration of the whole batch, in milliseconds.
        index: the version that all of them searched.
        results: the result or the problem of each search, in order.
    """

    request_id: str
    took_ms: float
    index: IndexName
    results: tuple[SearchResult | ServiceError, ...]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of texts.

    Attributes:
        vectors: float32 [texts, dim] as tuples, L2-normalized, in the order of the texts.
        model: name of the model, with its hash.
        tokens: subword tokens that were encoded.
        truncated: positions of the texts that were cut at the model's token limit.
    """

    vectors: tuple[tuple[float, ...], ...]
    model: str
    tokens: int
    truncated: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service is ready for requests; `reason` says why not."""

    is_ready: bool
    reason: str = ""


def batch_of(received: ReceivedBatch) -> BatchResult:
    """The results of a batch."""
    results = tuple(_search_of(item, received) for item in received.results)
    return BatchResult(received.request_id, received.took_ms, received.index, results)


def _search_of(item: BatchItem, batch: ReceivedBatch) -> SearchResult | ServiceError:
    if item.problem is not None:
        return problem_in(item.problem, item.status)
    if item.query is None:
        raise InvalidResponseError(
            f"a search of the batch has status {item.status}, but neither a result nor a problem; "
            "check that the address is a GLOW service of a supported version"
        )
    return SearchResult(
        request_id=batch.request_id,
        took_ms=batch.took_ms,
        degraded=item.degraded or (),
        index=item.index or batch.index,
        query=item.query,
        hits=item.hits or (),
        confidence=item.confidence,
        facets=item.facets,
        timings_ms=item.timings_ms or {},
    )


def document_of(received: ListedDocument) -> Document:
    """A document, with the values of each field as a tuple."""
    fields = received.fields.items()
    values = {name: (value,) if isinstance(value, str) else value for name, value in fields}
    return Document(received.id, values, received.metadata)


def embeddings_of(received: EmbeddingsResult) -> Embeddings:
    """Vectors that were sent in base64."""
    data = sorted(received.data, key=lambda item: item.index)
    usage = received.usage
    vectors = tuple(_vector(str(item.embedding), item.index) for item in data)
    return Embeddings(vectors, received.model, usage.total_tokens, usage.truncated)


def _vector(text: str, place: int) -> tuple[float, ...]:
    numbers = array("f")
    try:
        numbers.frombytes(b64decode(text, validate=True))
    except (Base64Error, ValueError) as error:
        raise InvalidResponseError(
            f"vector {place} is not base64 of float32 numbers ({error}); check that the service is GLOW"
        ) from error
    if sys.byteorder == "big":
        numbers.byteswap()  # the API sends little-endian numbers
    return tuple(numbers)


T = TypeVar("T")
R = TypeVar("R")

MOST_PATH_CHARACTERS = 32_000
"""Longest percent-encoded id in a path: the service accepts 64 KiB of request line and headers."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how to read its response."""

    method: Literal["GET", "POST", "PATCH"]
    path: str  # relative to the service's address
    read: Callable[[httpx.Response], T]  # converts a response to the call's result, or raises a `ClientError`
    body: Mapping[str, Any] | None = None  # JSON to send
    is_repeatable: bool = True  # whether a 429 or 503 may be retried; for health routes it is the result


def _reading(kind: type[R], convert: Callable[[R], T]) -> Callable[[httpx.Response], T]:
    return lambda response: convert(record_of(response, kind))


def _as_received(kind: type[T]) -> Callable[[httpx.Response], T]:
    return lambda response: record_of(response, kind)


def search(query: str | None = None, **options: Unpack[SearchOptions]) -> Call[SearchResult]:
    """Searches for the documents that match a query.

    Args:
        query: the query; None if the options have `vector`, `like` or only a filter.
        options: see `SearchOptions`.
    """
    body = _search_body({"query": query, **options})
    return Call("POST", "/v1/search", _as_received(SearchResult), body)


def search_batch(searches: Sequence[str | SearchRequest]) -> Call[BatchResult]:
    """Runs several searches on one index version; an invalid one fails alone.

    Args:
        searches: queries, or requests with their own options.
    """
    bodies = [_search_body({"query": one} if isinstance(one, str) else one) for one in searches]
    return Call("POST", "/v1/search/batch", _reading(ReceivedBatch, batch_of), {"searches": bodies})


def _search_body(request: SearchRequest) -> dict[str, Any]:
    return {name: value for name, value in request.items() if value is not None}


def suggest(query: str, *, top_k: int = 8) -> Call[SuggestResult]:
    """Suggests titles and phrases for a query that is being typed.

    Args:
        query: the text so far.
        top_k: most suggestions.
    """
    address = urlencode({"q": query, "k": top_k})
    return Call("GET", f"/v1/suggest?{address}", _as_received(SuggestResult))


def explain(query: str, document_id: str, **options: Unpack[SearchOptions]) -> Call[ExplainResult]:
    """Says why a search returns a document, or does not.

    Args:
        query: the query.
        document_id: id of the document.
        options: options of the search.
    """
    body = {"id": document_id, **_search_body({"query": query, **options})}
    return Call("POST", "/v1/explain", _as_received(ExplainResult), body)


def document(document_id: str) -> Call[Document]:
    """Fetches one document.

    Args:
        document_id: its id, which may contain `/`.

    Raises:
        NotFoundError: if the index has no document with this id.
        ConfigError: if the id is empty, or cannot be part of a path.
    """
    return Call("GET", _path_of(document_id), _reading(DocumentResult, document_of))


def _path_of(document_id: str) -> str:
    try:
        path = quote(document_id, safe="/")
    except UnicodeEncodeError:  # a lone surrogate
        path = ""
    has_dots = any(part in (".", "..") for part in document_id.split("/"))
    if has_dots or not 0 < len(path) <= MOST_PATH_CHARACTERS:
        raise ConfigError(
            f"document id {document_id!r:.80} cannot be part of a path; expected text of 1 to {MOST_PATH_CHARACTERS} "
            "characters, percent-encoded, without parts '.' and '..'"
        )
    return f"/v1/documents/{path}"


def document_page(
    after: str = "", *, limit: int = 100, wanted: Mapping[str, Any] | None = None
) -> Call[DocumentsResult]:
    """A page of all documents, in the order of their ids."""
    given = {"after": after, "limit": limit} | ({} if wanted is None else {"filter": json.dumps(wanted)})
    path = f"/v1/documents?{urlencode(given)}"
    return Call("GET", path, _as_received(DocumentsResult))


def write(documents: Sequence[Mapping[str, Any]], *, wait_s: float = 0.0) -> Call[OperationResult]:
    """Adds documents, or replaces those with the same ids.

    Args:
        documents: documents as in a collection: `{"_id": …, "title": …, "text": …}`.
        wait_s: how long to wait until searches find them, in seconds, less than `timeout_s`; 0: do not wait.
    """
    return _write("/v1/documents", {"documents": list(documents)}, wait_s)


def patch(document_id: str, metadata: Mapping[str, Any], *, wait_s: float = 0.0) -> Call[OperationResult]:
    """Changes metadata of a document, which is not encoded again; an unknown id is ignored.

    Args:
        document_id: its id.
        metadata: a JSON merge patch: keys with new values; None removes a key.
        wait_s: as for `write`.
    """
    return _write(_path_of(document_id), metadata, wait_s, "PATCH")


def delete(ids: Sequence[str], *, wait_s: float = 0.0) -> Call[OperationResult]:
    """Deletes documents; unknown ids are ignored.

    Args:
        ids: ids of the documents.
        wait_s: as for `write`.
    """
    return _write("/v1/documents/delete", {"ids": list(ids)}, wait_s)


def delete_where(
    wanted: Mapping[str, Any], *, all_documents: bool = False, wait_s: float = 0.0
) -> Call[OperationResult]:
    """Deletes the documents that match a filter at the time when the write is applied.

    Args:
        wanted: a filter, as for a search.
        all_documents: allow a filter that matches every document.
        wait_s: as for `write`.
    """
    body = {"filter": wanted, **({"all": True} if all_documents else {})}
    return _write("/v1/documents/delete", body, wait_s)


def _write(
    path: str, body: Mapping[str, Any], wait_s: float, method: Literal["POST", "PATCH"] = "POST"
) -> Call[OperationResult]:
    waiting = f"?wait=visible&wait_s={wait_s:g}" if wait_s > 0 else ""
    # A refused write (429, 503) was not accepted, so it may be retried; one whose connection broke may have been.
    return Call(method, path + waiting, _as_received(OperationResult), body)


def operation(operation_id: str) -> Call[OperationResult]:
    """The state of a write, by its operation id."""
    return Call("GET", f"/v1/operations/{quote(operation_id, safe='')}", _as_received(OperationResult))


def feedback(
    request_id: str,
    document_id: str,
    kind: Literal["click", "like", "dislike"] = "click",
    *,
    rank: int | None = None,
    dwell_s: float | None = None,
    user: str | None = None,
) -> Call[None]:
    """Reports a click or a rating of a hit, if the service keeps a feedback log.

    Args:
        request_id: the complete `request_id` of the search result.
        document_id: id of the hit.
        kind: kind of feedback.
        rank: rank at which the hit was shown, from 1.
        dwell_s: seconds that the user spent on the document; send the click again with it.
        user: distinguishes users of this client's key; the service stores only a keyed hash of it.

    Raises:
        NotFoundError: if the service keeps no feedback log.
        BadRequestError: if no search of this service had this request id.
        BusyError: if this user exceeded the service's hourly limit.
    """
    given = {"rank": rank, "dwell_s": dwell_s, "user": user}
    body: dict[str, Any] = {"request_id": request_id, "id": document_id, "kind": kind}
    body |= {name: value for name, value in given.items() if value is not None}
    return Call("POST", "/v1/feedback", _reading(FeedbackResult, lambda _: None), body)


def embeddings(
    texts: str | Sequence[str],
    *,
    input_type: Literal["query", "document"] = "query",
    model: str | None = None,
) -> Call[Embeddings]:
    """Encodes texts.

    Args:
        texts: one text or several.
        input_type: encoder to use.
        model: the expected model, with or without its hash; the service refuses a different one.
    """
    body: dict[str, Any] = {
        "input": texts if isinstance(texts, str) else list(texts),
        "input_type": input_type,
        "encoding_format": "base64",  # a third of the bytes of decimal numbers
    }
    if model is not None:
        body["model"] = model
    return Call("POST", "/v1/embeddings", _reading(EmbeddingsResult, embeddings_of), body)


def info() -> Call[Info]:
    """Information about the service: version, index, model, settings."""
    return Call("GET", "/info", _as_received(Info))


def health() -> Call[bool]:
    """Whether the service's process runs; never retried."""
    return Call("GET", "/healthz", _reading(dict, bool), is_repeatable=False)


def ready() -> Call[Readiness]:
    """Whether the service is ready for requests, and why not; never retried."""
    return Call("GET", "/readyz", _read_readiness, is_repeatable=False)


def _read_readiness(response: httpx.Response) -> Readiness:
    if response.status_code != 503:
        record_of(response, dict)
        return Readiness(True)
    return Readiness(False, problem_of(response).detail)
