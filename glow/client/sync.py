"""The synchronous client."""

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar, Unpack

import httpx

from glow.client import calls
from glow.client.calls import Call
from glow.client.connection import LIMITS, Connection, as_method
from glow.client.limits import MAX_RESPONSE_BYTES, Body, bound_streams, ends_within
from glow.client.options import PagedOptions
from glow.client.paging import Paging
from glow.client.retry import Outcome, RetryPolicy
from glow.contract import Hit, SearchResult

__all__ = ["GlowClient"]

T = TypeVar("T")
P = ParamSpec("P")


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
    document = _sends(calls.document)
    feedback = _sends(calls.feedback)
    write = _sends(calls.write)
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
