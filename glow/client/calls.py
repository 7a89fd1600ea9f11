"""Every call of the service, once: the request to send, and how to read its response. Both clients have them as methods."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote, urlencode

import httpx
import msgspec

from glow.client.errors import InvalidResponseError, ServiceError, problem_in, problem_of
from glow.contract import (
    DocumentResult,
    DocumentsResult,
    EmbeddingsResult,
    ExplainResult,
    FeedbackResult,
    Hit,
    Info,
    ListedDocument,
    OperationResult,
    Problem,
    SearchResult,
    SuggestResult,
)
from glow.errors import ConfigError
from glow.records import Document

Members = Mapping[str, Any]  # a JSON object


class PagedOptions(TypedDict, total=False):
    """Options of a paged search; an option that is None is not sent. docs/reference/http.md has them in full."""

    offset: int | None  # hits to skip
    candidates: int | None  # hits to retrieve; pages of one ranking need the same number
    retriever: Literal["dense", "lexical", "learned-sparse", "hybrid"] | None  # how to find candidates
    vector: Sequence[float] | None  # in place of a query: a vector of the index's dimensions
    like: Members | None  # in place of a query, a document: {"id": "d42"}
    typos: Literal["auto", "off"] | None  # `off` searches the query as it is typed
    match: Literal["auto", "all", "any"] | None  # whether documents must have `all` words or `any`
    syntax: Literal["auto", "plain"] | None  # `plain` reads no phrases and exclusions
    prefix: bool | None  # whether the last word is the start of one
    fusion: Members | None  # {"method": "convex", "weights": {"dense": 0.7, "lexical": 0.3}}
    rerank: bool | Members | None  # True, or {"depth": 50}
    filter: Members | None  # {"lang": ["en", "de"], "year": {"gte": 2000}}; see docs/filters.md
    min_score: float | None  # lowest score of a hit
    sort: str | Members | Sequence[str | Members] | None  # ["-year", "score"]
    boosts: Sequence[Members] | None  # [{"filter": {…}, "factor": 2}, {"recency": {"field": "published"}}]
    group_by: Members | None  # {"field": "author", "size": 1}
    fields: Sequence[str] | None  # fields and metadata to return; default: all
    facets: str | Members | Sequence[str | Members] | None  # ["lang", {"field": "year", "limit": 10}]
    highlight: bool | Members | None  # True, or {"fields": […], "fragments": 2, "fragment_chars": 200}
    vectors: bool | None  # True returns the stored vector of each hit
    explain: bool | Members | None  # True, or {"leave_one_out": True}
    params: Members | None  # {"ef_search": 64, "nprobe": 16, "exact": False}
    timeout_ms: int | None  # the service's deadline
    allow_partial: bool | None  # True returns partial results after the deadline
    allow_truncated: bool | None  # False fails if the response is too large; otherwise hits are cut


class SearchOptions(PagedOptions, total=False):
    """Options of one search."""

    top_k: int | None  # hits to return


class SearchRequest(SearchOptions, total=False):
    """One search of a batch: its own options, and a query unless they give a vector or a document."""

    query: str | None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service is ready for requests; `reason` says why not."""

    is_ready: bool
    reason: str = ""


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", covariant=True)
A = TypeVar("A", covariant=True)
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how to read its response."""

    method: Literal["GET", "POST", "PATCH"]
    path: str  # relative to the service's address
    read: Callable[[httpx.Response], T]  # its result, from a response
    body: Members | None = None  # JSON to send
    is_repeatable: bool = True  # whether a 429 or 503 may be retried; for health routes it is the result


@dataclass(frozen=True, slots=True)
class Pages(Generic[R, T]):
    """Calls that follow from each other: each is sent when its page is needed, and the page is sent back in."""

    calls: Generator[Call[R], R, None]
    items: Callable[[R], Sequence[T]]


class Method(Generic[P, S, A]):
    """A method of both clients, which sends what it makes: `GlowClient` returns S, and `AsyncGlowClient` A."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        make.__annotations__.pop("return")  # `help` shows no return type, since it depends on the client

    @overload
    def __get__(self, client: "Calls[httpx.Client]", kind: type) -> Callable[P, S]: ...
    @overload
    def __get__(self, client: "Calls[httpx.AsyncClient]", kind: type) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: type) -> Callable[..., Any]:
        if client is None:
            return self._make

        @wraps(self._make)
        def method(*args: Any, **options: Any) -> Any:
            calls = self._make(client, *args, **options)
            return client._walk(calls) if isinstance(calls, Pages) else client._run(calls)

        return method


def sends(make: Callable[Concatenate[Any, P], Call[T]]) -> Method[P, T, Coroutine[Any, Any, T]]:
    """A method that sends a call and returns its result."""
    return Method(make)


def walks(make: Callable[Concatenate[Any, P], Pages[Any, T]]) -> Method[P, Iterator[T], AsyncIterator[T]]:
    """A method that iterates over the items of pages."""
    return Method(make)


DEFAULT_CANDIDATES = 100
"""The service's default number of candidates, unless its setting `default_candidates` differs."""
MOST_PATH_CHARACTERS = 32_000
"""Longest percent-encoded id in a path: the service accepts 64 KiB of request line and headers."""


class Calls(Generic[H]):
    """The methods of both clients; H is the client of httpx that sends."""

    @sends
    def search(self, query: str | None = None, **options: Unpack[SearchOptions]) -> Call[SearchResult]:
        """Searches for the documents that match a query; it is None if `vector`, `like` or a filter stands in its place."""
        return _search(query, options)

    @walks
    def search_pages(
        self,
        query: str | None = None,
        *,
        page_size: int = 10,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> Pages[SearchResult, SearchResult]:
        """Iterates over the pages of a search until it had `limit` hits, and requests each page when it is needed.

        A long iteration sets the option `candidates`, so that pages are consistent.
        """
        return Pages(_search_pages(query, page_size, limit, options), lambda page: (page,))

    @walks
    def search_hits(
        self,
        query: str | None = None,
        *,
        page_size: int = 50,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> Pages[SearchResult, Hit]:
        """Iterates over the hits of a search; arguments as for `search_pages`."""
        return Pages(_search_pages(query, page_size, limit, options), lambda page: page.hits)

    @sends
    def search_batch(
        self, searches: Sequence[str | SearchRequest]
    ) -> Call[tuple[SearchResult | ServiceError, ...]]:
        """Runs several searches, queries or requests with options, on one index version; an invalid one fails alone."""
        bodies = [_present({"query": one} if isinstance(one, str) else one) for one in searches]
        return Call("POST", "/v1/search/batch", _batch_of, {"searches": bodies})

    @sends
    def suggest(self, query: str, *, top_k: int = 8) -> Call[SuggestResult]:
        """Suggests up to `top_k` titles and phrases for a query that is being typed."""
        return Call("GET", f"/v1/suggest?{urlencode({'q': query, 'k': top_k})}", _reading(SuggestResult))

    @sends
    def explain(self, query: str, document_id: str, **options: Unpack[SearchOptions]) -> Call[ExplainResult]:
        """Says why a search with these options returns a document, or does not."""
        body = {"id": document_id, "query": query, **_present(options)}
        return Call("POST", "/v1/explain", _reading(ExplainResult), body)

    @sends
    def document(self, document_id: str) -> Call[Document]:
        """Fetches one document by its id, which may contain `/`.

        Raises:
            NotFoundError: if the index has no document with this id.
            ConfigError: if the id is empty, or cannot be part of a path.
        """
        read = _reading(DocumentResult)
        return Call("GET", _path_of(document_id), lambda response: _document_of(read(response)))

    @walks
    def documents(
        self, after: str = "", *, page_size: int = 100, filter: Members | None = None
    ) -> Pages[DocumentsResult, Document]:
        """Iterates over the documents after an id, by id; requests each page, of up to 1,000, when it is needed."""
        pages = _document_pages(after, page_size, filter)
        return Pages(pages, lambda page: [_document_of(each) for each in page.documents])

    @sends
    def write(self, documents: Sequence[Members], *, wait_s: float = 0.0) -> Call[OperationResult]:
        """Adds documents, or replaces those with the same ids.

        Args:
            documents: documents as in a collection: `{"_id": …, "title": …, "text": …}`.
            wait_s: how long to wait until searches find them, in seconds, less than `timeout_s`; 0: do not wait.
        """
        return _write("POST", "/v1/documents", {"documents": list(documents)}, wait_s)

    @sends
    def patch(self, document_id: str, metadata: Members, *, wait_s: float = 0.0) -> Call[OperationResult]:
        """Changes metadata of a document, which is not encoded again; an unknown id is ignored. `wait_s` as for `write`.

        `metadata` is a JSON merge patch: keys with new values; None removes a key.
        """
        return _write("PATCH", _path_of(document_id), metadata, wait_s)

    @sends
    def delete(self, ids: Sequence[str], *, wait_s: float = 0.0) -> Call[OperationResult]:
        """Deletes documents by id; unknown ids are ignored. `wait_s` as for `write`."""
        return _write("POST", "/v1/documents/delete", {"ids": list(ids)}, wait_s)

    @sends
    def delete_where(
        self, filter: Members, *, all_documents: bool = False, wait_s: float = 0.0
    ) -> Call[OperationResult]:
        """Deletes the documents that match a filter at the time when the write is applied. `wait_s` as for `write`.

        With `all_documents`, the filter may match every document.
        """
        body = {"filter": filter, **({"all": True} if all_documents else {})}
        return _write("POST", "/v1/documents/delete", body, wait_s)

    @sends
    def operation(self, operation_id: str) -> Call[OperationResult]:
        """The state of a write, by its operation id."""
        return Call("GET", f"/v1/operations/{quote(operation_id, safe='')}", _reading(OperationResult))

    @sends
    def feedback(
        self,
        request_id: str,
        document_id: str,
        kind: Literal["click", "like", "dislike"] = "click",
        *,
        rank: int | None = None,
        dwell_s: float | None = None,
        user: str | None = None,
    ) -> Call[FeedbackResult]:
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
        members = {"request_id": request_id, "id": document_id, "kind": kind}
        body = _present({**members, "rank": rank, "dwell_s": dwell_s, "user": user})
        return Call("POST", "/v1/feedback", _reading(FeedbackResult), body)

    @sends
    def embeddings(
        self,
        texts: str | Sequence[str],
        *,
        input_type: Literal["query", "document"] = "query",
        model: str | None = None,
    ) -> Call[EmbeddingsResult]:
        """Encodes texts; `vectors` of the result has a vector for each.

        Args:
            texts: one text or several.
            input_type: encoder to use.
            model: the expected model, with or without its hash; the service refuses a different one.
        """
        several = texts if isinstance(texts, str) else list(texts)
        body = _present({"input": several, "input_type": input_type, "model": model})
        return Call("POST", "/v1/embeddings", _reading(EmbeddingsResult), body)

    @sends
    def info(self) -> Call[Info]:
        """Information about the service: version, index, model, settings."""
        return Call("GET", "/info", _reading(Info))

    @sends
    def health(self) -> Call[bool]:
        """Whether the service's process runs; never retried."""
        return Call("GET", "/healthz", lambda response: bool(_reading(dict)(response)), is_repeatable=False)

    @sends
    def ready(self) -> Call[Readiness]:
        """Whether the service is ready for requests, and why not; never retried."""
        return Call("GET", "/readyz", _readiness_of, is_repeatable=False)


def _present(members: Members) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _search(query: str | None, options: SearchOptions) -> Call[SearchResult]:
    return Call("POST", "/v1/search", _reading(SearchResult), _present({"query": query, **options}))


def _search_pages(
    query: str | None, page_size: int, limit: int, options: PagedOptions
) -> Generator[Call[SearchResult], SearchResult, None]:
    """The calls of an iteration; a page that is not full is the last.

    A long one requests on every page as many `candidates` as all of it needs, so that its pages are of one ranking.
    """
    if min(page_size, limit) < 1:
        raise ConfigError(f"page_size is {page_size} and limit is {limit}; both must be at least 1")
    start = options.get("offset") or 0
    end = start + limit
    candidates = options.get("candidates") or (end if end > DEFAULT_CANDIDATES else None)
    is_over = False
    while start < end and not is_over:
        size = min(page_size, end - start)
        place: SearchOptions = {"candidates": candidates, "offset": start, "top_k": size}
        page = yield _search(query, {**options, **place})
        is_over = len(page.hits) < size
        start += size


def _document_pages(
    after: str, size: int, filter: Members | None
) -> Generator[Call[DocumentsResult], DocumentsResult, None]:
    restriction = {} if filter is None else {"filter": json.dumps(filter)}
    start: str | None = after
    while start is not None:
        address = urlencode({"after": start, "limit": size, **restriction})
        start = (yield Call("GET", f"/v1/documents?{address}", _reading(DocumentsResult))).next


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


def _write(
    method: Literal["POST", "PATCH"], path: str, body: Members, wait_s: float
) -> Call[OperationResult]:
    waiting = f"?wait=visible&wait_s={wait_s:g}" if wait_s > 0 else ""
    # A refused write (429, 503) was not accepted, so it may be retried; one whose connection broke may have been.
    return Call(method, path + waiting, _reading(OperationResult), body)


def _reading(kind: type[T]) -> Callable[[httpx.Response], T]:
    """Reads the record of a successful response; a problem, a redirect or another shape is an error."""

    def read(response: httpx.Response) -> T:
        if response.is_error:
            raise problem_of(response)
        if not response.is_success:
            raise InvalidResponseError(
                f"{response.url} returned status {response.status_code}, expected no redirect; "
                "give the address of the service itself"
            )
        return msgspec.json.decode(response.content, type=kind)

    return read


def _readiness_of(response: httpx.Response) -> Readiness:
    if response.status_code == 503:
        return Readiness(False, problem_of(response).detail)
    return Readiness(bool(_reading(dict)(response)))


def _document_of(received: ListedDocument) -> Document:
    fields = received.fields.items()
    values = {name: (value,) if isinstance(value, str) else value for name, value in fields}
    return Document(received.id, values, received.metadata)


class _Batch(msgspec.Struct):
    """A response whose results are still plain values, because each is a search's result or a problem."""

    request_id: str
    took_ms: float
    index: dict[str, Any]
    results: tuple[dict[str, Any], ...]


def _batch_of(response: httpx.Response) -> tuple[SearchResult | ServiceError, ...]:
    batch = _reading(_Batch)(response)
    shared = {"request_id": batch.request_id, "took_ms": batch.took_ms, "index": batch.index}
    return tuple(
        problem_in(msgspec.convert(item["problem"], Problem), int(item.get("status", 500)))
        if "problem" in item
        else msgspec.convert({**shared, **item}, SearchResult)
        for item in batch.results
    )
