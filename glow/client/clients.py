"""The two clients: connection, pages of a search, and the same methods with and without `await`."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

import httpx

from glow import __version__
from glow.client import calls
from glow.client.attempts import (
    MAX_RESPONSE_BYTES,
    Body,
    Outcome,
    Retries,
    RetryPolicy,
    bound_streams,
    ends_within,
)
from glow.client.calls import Call, PagedOptions, SearchOptions, search
from glow.client.errors import raise_failure
from glow.contract import Hit, SearchResult
from glow.errors import ConfigError
from glow.records import Document

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound=Callable[..., Any])
_NEVER_AGAIN = RetryPolicy(attempts=1)
# The service closes connections that are idle for 5 s; expiring them earlier keeps a request from being cut off.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a service."""

    base_url: str  # `http://` or `https://` address; a trailing slash is ignored
    # sent as `Authorization: Bearer`; None for a service without keys
    api_key: str | None = field(repr=False)
    timeout_s: float  # time limit of one attempt
    policy: RetryPolicy
    max_response_bytes: int  # largest decoded response body

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ConfigError(
                f"base_url {self.base_url!r:.80} is not an address; expected one such as http://127.0.0.1:8080"
            )
        key = self.api_key
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                "the API key is empty or has characters that a header cannot contain; copy the whole key again"
            )

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[T]) -> httpx.Request:
        """The request of a call."""
        headers = {"User-Agent": f"glow-client/{__version__}", "Accept": "application/json"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        url = self.base_url.rstrip("/") + call.path
        return http.build_request(call.method, url, json=call.body, headers=headers, timeout=self.timeout_s)

    def retries(self, call: Call[T]) -> Retries:
        """Retry state of a call that starts now."""
        return Retries(self.policy if call.is_repeatable else _NEVER_AGAIN)

    def answer(self, call: Call[T], outcome: Outcome) -> T:
        """Result of a call, from the outcome of its last attempt."""
        if isinstance(outcome, httpx.RequestError):
            raise_failure(outcome, self.base_url)
        return call.read(outcome)


def _is_address(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not url.query and not url.fragment


def as_method(method: M, make: Callable[..., Any]) -> M:
    """Gives a client's method the name, documentation and arguments of the function that makes its call."""
    signature = inspect.signature(make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    arguments = [own, *signature.parameters.values()]
    vars(method)["__signature__"] = signature.replace(
        parameters=arguments, return_annotation=inspect.Signature.empty
    )
    return method


DEFAULT_CANDIDATES = 100
"""The service's default number of candidates, unless its setting `default_candidates` differs."""


class Paging:
    """State of an iteration over the pages of one search, all from the same candidates.

    Pages are consistent only with the same number of `candidates`. Unless the caller sets it, a long iteration requests
    on every page as many candidates as the whole iteration needs. A short one uses the service's default:
    fewer candidates would change the ranking of hybrid search.
    """

    def __init__(self, query: str | None, page_size: int, limit: int, options: PagedOptions) -> None:
        if min(page_size, limit) < 1:
            raise ConfigError(f"page_size is {page_size} and limit is {limit}; both must be at least 1")
        self._query = query
        self._page_size = page_size
        self._offset = options.get("offset") or 0
        self._end = self._offset + limit
        self._options = cast(SearchOptions, dict(options))
        if options.get("candidates") is None and self._end > DEFAULT_CANDIDATES:
            self._options["candidates"] = self._end
        self._is_over = False

    def next_call(self) -> Call[SearchResult] | None:
        """The call for the next page; None after the last."""
        size = min(self._page_size, self._end - self._offset)
        if self._is_over or size < 1:
            return None
        here = cast(SearchOptions, {**self._options, "offset": self._offset, "top_k": size})
        return search(self._query, **here)

    def took(self, page: SearchResult) -> None:
        """Records a received page; a page that is not full is the last."""
        size = min(self._page_size, self._end - self._offset)
        self._is_over = len(page.hits) < size
        self._offset += size


def _sends(make: Callable[P, Call[T]]) -> "Callable[Concatenate[GlowClient, P], T]":
    """A method that sends a call and returns its result."""

    def method(self: "GlowClient", /, *args: P.args, **options: P.kwargs) -> T:
        return self._run(make(*args, **options))

    return as_method(method, make)


class GlowClient:
    """Calls a GLOW service. Threads may share one client; reuse it, because it keeps connections open.

    Every method raises a `ClientError` on failure: `ServiceError` for a problem response of the service,
    otherwise `ConnectionFailedError` or `InvalidResponseError`.

    Args:
        base_url: address of the service; `http://127.0.0.1:8080` for a local one.
        api_key: API key, if the service needs one.
        timeout_s: time limit of one attempt, from connecting to the last byte, in seconds.
        retry: how to retry after a 429, a 503, or a failed connection.
        http: your own httpx client, for proxies or certificates; it stays open when this client closes.
            `timeout_s` then bounds each wait for the head of a response, and the whole of its body.
        max_response_bytes: largest response; a longer one is refused.

    Raises:
        ConfigError: if the address or the key is invalid.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        http: httpx.Client | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._connection = Connection(
            base_url, api_key, timeout_s, retry or RetryPolicy(), max_response_bytes
        )
        self._http = http or httpx.Client(limits=LIMITS)
        self._is_owner = http is None
        if self._is_owner:
            bound_streams(self._http)

    search = _sends(calls.search)
    search_batch = _sends(calls.search_batch)
    suggest = _sends(calls.suggest)
    explain = _sends(calls.explain)
    document = _sends(calls.document)
    feedback = _sends(calls.feedback)
    write = _sends(calls.write)
    patch = _sends(calls.patch)
    delete = _sends(calls.delete)
    delete_where = _sends(calls.delete_where)
    operation = _sends(calls.operation)
    embeddings = _sends(calls.embeddings)
    info = _sends(calls.info)
    health = _sends(calls.health)
    ready = _sends(calls.ready)

    def search_pages(
        self,
        query: str | None = None,
        *,
        page_size: int = 10,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> Iterator[SearchResult]:
        """Iterates over the pages of a search, and requests each when it is needed.

        Args:
            query: the query.
            page_size: hits per page.
            limit: hits of all pages; above 100 also the number of candidates, unless the options set it.
            options: options of every page.
        """
        paging = Paging(query, page_size, limit, options)
        while (call := paging.next_call()) is not None:
            page = self._run(call)
            paging.took(page)
            yield page

    def search_hits(
        self,
        query: str | None = None,
        *,
        page_size: int = 50,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> Iterator[Hit]:
        """Iterates over the hits of a search; same arguments as `search_pages`."""
        for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            yield from page.hits

    def documents(
        self, after: str = "", *, page_size: int = 100, wanted: Mapping[str, Any] | None = None
    ) -> Iterator[Document]:
        """Iterates over all documents in the order of their ids, and requests each page when it is needed.

        Args:
            after: begins after this id.
            page_size: documents per page, up to 1,000.
            wanted: a filter, as for a search; None: all documents.
        """
        start: str | None = after
        while start is not None:
            page = self._run(calls.document_page(start, limit=page_size, wanted=wanted))
            yield from map(calls.document_of, page.documents)
            start = page.next

    def close(self) -> None:
        """Closes the connections."""
        if self._is_owner:
            self._http.close()

    def __enter__(self) -> "GlowClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.base_url!r})"

    def _run(self, call: Call[T]) -> T:
        retries = self._connection.retries(call)
        outcome = self._send(call)
        while (pause_s := retries.pause_after(outcome)) is not None:
            time.sleep(pause_s)
            outcome = self._send(call)
        return self._connection.answer(call, outcome)

    def _send(self, call: Call[T]) -> Outcome:
        request = self._connection.request(self._http, call)
        try:
            with ends_within(self._connection.timeout_s):
                response = self._http.send(request, follow_redirects=False, stream=True)
                try:
                    body = Body(response, self._connection.max_response_bytes)
                    for data in response.iter_bytes():
                        body.add(data)
                finally:
                    response.close()
            return body.whole()
        except httpx.RequestError as failure:
            return failure


_LATER_S = 0.1
"""Lets httpx's own timeouts fire first: they tell a failed connection, which may be retried, from a sent request."""


def _awaits(
    make: Callable[P, Call[T]],
) -> "Callable[Concatenate[AsyncGlowClient, P], Coroutine[Any, Any, T]]":
    """A method that sends a call and returns its result."""

    async def method(self: "AsyncGlowClient", /, *args: P.args, **options: P.kwargs) -> T:
        return await self._run(make(*args, **options))

    return as_method(method, make)


class AsyncGlowClient:
    """Calls a GLOW service from asyncio; arguments and errors as for `GlowClient`.

    One client may be shared by the tasks of one event loop. Reuse it, because it keeps connections open.
    Canceling a task closes its connection, and the service stops working on the request.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        http: httpx.AsyncClient | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._connection = Connection(
            base_url, api_key, timeout_s, retry or RetryPolicy(), max_response_bytes
        )
        self._http = http or httpx.AsyncClient(limits=LIMITS)
        self._is_owner = http is None

    search = _awaits(calls.search)
    search_batch = _awaits(calls.search_batch)
    suggest = _awaits(calls.suggest)
    explain = _awaits(calls.explain)
    document = _awaits(calls.document)
    feedback = _awaits(calls.feedback)
    write = _awaits(calls.write)
    patch = _awaits(calls.patch)
    delete = _awaits(calls.delete)
    delete_where = _awaits(calls.delete_where)
    operation = _awaits(calls.operation)
    embeddings = _awaits(calls.embeddings)
    info = _awaits(calls.info)
    health = _awaits(calls.health)
    ready = _awaits(calls.ready)

    async def search_pages(
        self,
        query: str | None = None,
        *,
        page_size: int = 10,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> AsyncIterator[SearchResult]:
        """Like `GlowClient.search_pages`, for `async for`."""
        paging = Paging(query, page_size, limit, options)
        while (call := paging.next_call()) is not None:
            page = await self._run(call)
            paging.took(page)
            yield page

    async def search_hits(
        self,
        query: str | None = None,
        *,
        page_size: int = 50,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> AsyncIterator[Hit]:
        """Like `GlowClient.search_hits`, for `async for`."""
        async for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            for hit in page.hits:
                yield hit

    async def documents(
        self, after: str = "", *, page_size: int = 100, wanted: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Document]:
        """Like `GlowClient.documents`, for `async for`."""
        start: str | None = after
        while start is not None:
            page = await self._run(calls.document_page(start, limit=page_size, wanted=wanted))
            for each in page.documents:
                yield calls.document_of(each)
            start = page.next

    async def close(self) -> None:
        """Closes the connections."""
        if self._is_owner:
            await self._http.aclose()

    async def __aenter__(self) -> "AsyncGlowClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.base_url!r})"

    async def _run(self, call: Call[T]) -> T:
        retries = self._connection.retries(call)
        outcome = await self._send(call)
        while (pause_s := retries.pause_after(outcome)) is not None:
            await asyncio.sleep(pause_s)
            outcome = await self._send(call)
        return self._connection.answer(call, outcome)

    async def _send(self, call: Call[T]) -> Outcome:
        request = self._connection.request(self._http, call)
        try:
            async with asyncio.timeout(self._connection.timeout_s + _LATER_S):
                response = await self._http.send(request, follow_redirects=False, stream=True)
                try:
                    body = Body(response, self._connection.max_response_bytes)
                    async for data in response.aiter_bytes():
                        body.add(data)
                finally:
                    await response.aclose()
            return body.whole()
        except TimeoutError:
            return httpx.ReadTimeout("the response was not complete in time")
        except httpx.RequestError as failure:
            return failure
