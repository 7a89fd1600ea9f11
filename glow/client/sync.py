"""The synchronous client."""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack

import httpx

from glow.client import calls
from glow.client.answers import BatchResult, Embeddings, Readiness, ServiceInfo, WriteResult
from glow.client.calls import Call
from glow.client.connection import LIMITS, Connection
from glow.client.limits import MAX_RESPONSE_BYTES, Body, bound_streams, ends_within
from glow.client.options import PagedOptions, SearchOptions, SearchRequest
from glow.client.paging import Paging
from glow.client.results import SearchHit, SearchResult
from glow.client.retry import Outcome, RetryPolicy
from glow.records import Document

__all__ = ["GlowClient"]

T = TypeVar("T")


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

    def search(self, query: str | None = None, **options: Unpack[SearchOptions]) -> SearchResult:
        """Searches for the documents that match a query.

        Args:
            query: the query; None if the options have `vector`, `like` or only a filter.
            options: see `SearchOptions`.
        """
        return self._run(calls.search(query, **options))

    def search_batch(self, searches: Sequence[str | SearchRequest]) -> BatchResult:
        """Runs several searches on one index version; an invalid one fails alone.

        Args:
            searches: queries, or requests with their own options.
        """
        return self._run(calls.search_batch(searches))

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
    ) -> Iterator[SearchHit]:
        """Iterates over the hits of a search; same arguments as `search_pages`."""
        for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            yield from page.hits

    def document(self, document_id: str) -> Document:
        """Fetches one document.

        Args:
            document_id: its id, which may contain `/`.

        Raises:
            NotFoundError: if the index has no document with this id.
        """
        return self._run(calls.document(document_id))

    def feedback(
        self,
        request_id: str,
        document_id: str,
        kind: Literal["click", "like", "dislike"] = "click",
        *,
        rank: int | None = None,
        dwell_s: float | None = None,
        user: str | None = None,
    ) -> None:
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
        self._run(calls.feedback(request_id, document_id, kind, rank=rank, dwell_s=dwell_s, user=user))

    def write(self, documents: Sequence[Mapping[str, Any]], *, wait_s: float = 0.0) -> WriteResult:
        """Adds documents, or replaces those with the same ids.

        Args:
            documents: documents as in a collection: `{"_id": …, "title": …, "text": …}`.
            wait_s: how long to wait until searches find them, in seconds, less than `timeout_s`; 0: do not wait.
        """
        return self._run(calls.write(documents, wait_s))

    def delete(self, ids: Sequence[str], *, wait_s: float = 0.0) -> WriteResult:
        """Deletes documents; unknown ids are ignored.

        Args:
            ids: ids of the documents.
            wait_s: as for `write`.
        """
        return self._run(calls.delete(ids, wait_s))

    def delete_where(
        self, wanted: Mapping[str, Any], *, all_documents: bool = False, wait_s: float = 0.0
    ) -> WriteResult:
        """Deletes the documents that match a filter at the time when the write is applied.

        Args:
            wanted: a filter, as for a search.
            all_documents: allow a filter that matches every document.
            wait_s: as for `write`.
        """
        return self._run(calls.delete_where(wanted, wait_s, all_documents=all_documents))

    def operation(self, operation_id: str) -> WriteResult:
        """The state of a write, by its operation id."""
        return self._run(calls.operation(operation_id))

    def embeddings(
        self,
        texts: str | Sequence[str],
        *,
        input_type: Literal["query", "document"] = "query",
        model: str | None = None,
    ) -> Embeddings:
        """Encodes texts.

        Args:
            texts: one text or several.
            input_type: encoder to use.
            model: the expected model, with or without its hash; the service refuses a different one.
        """
        return self._run(calls.embeddings(texts, input_type, model))

    def info(self) -> ServiceInfo:
        """Information about the service: version, index, model, settings."""
        return self._run(calls.info())

    def health(self) -> bool:
        """Whether the service's process runs; never retried."""
        return self._run(calls.health())

    def ready(self) -> Readiness:
        """Whether the service is ready for requests, and why not; never retried."""
        return self._run(calls.ready())

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
