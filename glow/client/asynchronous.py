"""The client for asyncio; the same calls, retries and answers as in `sync.py`, with an `await` before them."""

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
"""httpx's own limits come first: what could not connect may be tried again, what was sent may not."""


class AsyncGlowClient:
    """Calls a GLOW service from asyncio; arguments and errors as for `GlowClient`.

    One client may be shared by the tasks of one event loop, and is best kept, because it keeps connections. A task
    that is cancelled closes its connection, and the service stops working for it.
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
        """As `GlowClient.search`."""
        return await self._run(calls.search(query, **options))

    async def search_batch(self, searches: Sequence[str | SearchRequest]) -> BatchResult:
        """As `GlowClient.search_batch`."""
        return await self._run(calls.search_batch(searches))

    async def search_pages(
        self,
        query: str | None = None,
        *,
        page_size: int = 10,
        limit: int = 100,
        **options: Unpack[PagedOptions],
    ) -> AsyncIterator[SearchResult]:
        """As `GlowClient.search_pages`, for `async for`."""
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
        """As `GlowClient.search_hits`, for `async for`."""
        async for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            for hit in page.hits:
                yield hit

    async def document(self, document_id: str) -> Document:
        """As `GlowClient.document`."""
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
        """As `GlowClient.feedback`."""
        await self._run(calls.feedback(request_id, document_id, kind, rank=rank, dwell_s=dwell_s, user=user))

    async def write(self, documents: Sequence[Mapping[str, Any]], *, wait_s: float = 0.0) -> WriteResult:
        """As `GlowClient.write`."""
        return await self._run(calls.write(documents, wait_s))

    async def delete(self, ids: Sequence[str], *, wait_s: float = 0.0) -> WriteResult:
        """As `GlowClient.delete`."""
        return await self._run(calls.delete(ids, wait_s))

    async def delete_where(
        self, wanted: Mapping[str, Any], *, all_documents: bool = False, wait_s: float = 0.0
    ) -> WriteResult:
        """As `GlowClient.delete_where`."""
        return await self._run(calls.delete_where(wanted, wait_s, all_documents=all_documents))

    async def operation(self, operation_id: str) -> WriteResult:
        """As `GlowClient.operation`."""
        return await self._run(calls.operation(operation_id))

    async def embeddings(
        self,
        texts: str | Sequence[str],
        *,
        input_type: Literal["query", "document"] = "query",
        model: str | None = None,
    ) -> Embeddings:
        """As `GlowClient.embeddings`."""
        return await self._run(calls.embeddings(texts, input_type, model))

    async def info(self) -> ServiceInfo:
        """As `GlowClient.info`."""
        return await self._run(calls.info())

    async def health(self) -> bool:
        """As `GlowClient.health`."""
        return await self._run(calls.health())

    async def ready(self) -> Readiness:
        """As `GlowClient.ready`."""
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
            return httpx.ReadTimeout("the response was not whole in time")
        except httpx.RequestError as failure:
            return failure
