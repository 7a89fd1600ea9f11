"""The client for asyncio: the same methods, retries and results as in `sync.py`, with `await`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

import httpx

from glow.client import calls
from glow.client.calls import Call
from glow.client.connection import LIMITS, Connection, as_method
from glow.client.limits import MAX_RESPONSE_BYTES, Body
from glow.client.options import PagedOptions
from glow.client.paging import Paging
from glow.client.retry import Outcome, RetryPolicy
from glow.contract import Hit, SearchResult

__all__ = ["AsyncGlowClient"]

T = TypeVar("T")
P = ParamSpec("P")
_LATER_S = 0.1
"""Lets httpx's own timeouts fire first: they tell a failed connection, which may be retried, from a sent request."""


def _sends(make: Callable[P, Call[T]]) -> "Callable[Concatenate[AsyncGlowClient, P], Coroutine[Any, Any, T]]":
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
