"""The client for asyncio: the same methods, retries and results as in `sync.py`, with `await`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack

import httpx

from glow.client import calls
from glow.client.answers import BatchResult, Embeddings, Readiness, ServiceInfo, WriteResult
from glow.client.calls import Call
from glow.client.connection import LIMITS, Connection
from glow.client.limits import MAX_RESPONSE_BYTES, Body
from glow.client.options import PagedOptions, SearchOptions, SearchRequest
from glow.client.paging import Paging
from glow.client.results import SearchHit, SearchResult
from glow.client.retry import Outcome, RetryPolicy
from glow.records import Document

__all__ = ["AsyncGlowClient"]

T = TypeVar("T")
_LATER_S = 0.1
"""Lets httpx's own timeouts fire first: they tell a failed connection, which may be retried, from a sent request."""


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

    async def search(self, query: str | None = None, **options: Unpack[SearchOptions]) -> SearchResult:
        """Like `GlowClient.search`."""
        return await self._run(calls.search(query, **options))

    async def search_batch(self, searches: Sequence[str | SearchRequest]) -> BatchResult:
        """Like `GlowClient.search_batch`."""
        return await self._run(calls.search_batch(searches))

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
    ) -> AsyncIterator[SearchHit]:
        """Like `GlowClient.search_hits`, for `async for`."""
        async for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            for hit in page.hits:
                yield hit

    async def document(self, document_id: str) -> Document:
        """Like `GlowClient.document`."""
        return await self._run(calls.document(document_id))

    async def feedback(
        self,
        request_id: str,
        document_id: str,
        kind: Literal["click", "like", "dislike"] = "click",
        *,
        rank: int | None = None,
        dwell_s: float | None = None,
        user: str | None = None,
    ) -> None:
        """Like `GlowClient.feedback`."""
        await self._run(calls.feedback(request_id, document_id, kind, rank=rank, dwell_s=dwell_s, user=user))

    async def write(self, documents: Sequence[Mapping[str, Any]], *, wait_s: float = 0.0) -> WriteResult:
        """Like `GlowClient.write`."""
        return await self._run(calls.write(documents, wait_s))

    async def delete(self, ids: Sequence[str], *, wait_s: float = 0.0) -> WriteResult:
        """Like `GlowClient.delete`."""
        return await self._run(calls.delete(ids, wait_s))

    async def delete_where(
        self, wanted: Mapping[str, Any], *, all_documents: bool = False, wait_s: float = 0.0
    ) -> WriteResult:
        """Like `GlowClient.delete_where`."""
        return await self._run(calls.delete_where(wanted, wait_s, all_documents=all_documents))

    async def operation(self, operation_id: str) -> WriteResult:
        """Like `GlowClient.operation`."""
        return await self._run(calls.operation(operation_id))

    async def embeddings(
        self,
        texts: str | Sequence[str],
        *,
        input_type: Literal["query", "document"] = "query",
        model: str | None = None,
    ) -> Embeddings:
        """Like `GlowClient.embeddings`."""
        return await self._run(calls.embeddings(texts, input_type, model))

    async def info(self) -> ServiceInfo:
        """Like `GlowClient.info`."""
        return await self._run(calls.info())

    async def health(self) -> bool:
        """Like `GlowClient.health`."""
        return await self._run(calls.health())

    async def ready(self) -> Readiness:
        """Like `GlowClient.ready`."""
        return await self._run(calls.ready())

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
