"""The client for ordinary code."""

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
    """Calls a GLOW service; one client may be shared by threads, and is best kept, because it keeps connections.

    Every method raises a `ClientError` where it brings no answer: `ServiceError` for a problem that the service
    answered with, `ConnectionFailedError` or `InvalidResponseError` else.

    Args:
        base_url: where the service listens, `http://127.0.0.1:8080` for one that runs here.
        api_key: for a service that needs one.
        timeout_s: seconds that one try may take, from connecting to the last byte.
        retry: when to try again: after a 429, a 503, or no connection.
        http: an httpx client of yours, for proxies or certificates of your own; it stays open when this one closes.
            `timeout_s` then bounds each wait for the head of a response, and the whole of its body.
        max_response_bytes: a longer response is refused.

    Raises:
        ConfigError: if the address or the key cannot be one.
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
        """Finds the documents that answer a query.

        Args:
            query: what to search for; None where the options `vector` or `like` say so, or a filter is browsed.
            options: as `SearchOptions` lists them.
        """
        return self._run(calls.search(query, **options))

    def search_batch(self, searches: Sequence[str | SearchRequest]) -> BatchResult:
        """Answers several searches from one index version; one at fault costs itself only.

        Args:
            searches: queries, or requests with options of their own.
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
        """Goes through a search page by page, and asks for the next only when it is wanted.

        Args:
            query: what to search for.
            page_size: hits of a page.
            limit: hits of all pages; above 100 also the candidates, where the options name none.
            options: of every page.
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
        """Goes through the hits of a search; arguments as for `search_pages`."""
        for page in self.search_pages(query, page_size=page_size, limit=limit, **options):
            yield from page.hits

    def document(self, document_id: str) -> Document:
        """Fetches one document.

        Args:
            document_id: its id; `/` in it is fine.

        Raises:
            NotFoundError: if the index holds none of that id.
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
        """Notes what somebody did with a hit, where the service keeps a log of that.

        Args:
            request_id: of the search's answer, whole.
            document_id: of the hit.
            kind: what was done.
            rank: of the hit, as it was shown, from 1.
            dwell_s: how long somebody stayed with the document, in seconds; send the click again with it.
            user: tells the users behind this client's key apart; the service keeps a keyed hash of it alone.

        Raises:
            NotFoundError: if the service keeps no such log.
            BadRequestError: if no search of this service had that id.
            BusyError: if this person sent more than the service takes in an hour.
        """
        self._run(calls.feedback(request_id, document_id, kind, rank=rank, dwell_s=dwell_s, user=user))

    def write(self, documents: Sequence[Mapping[str, Any]], *, wait_s: float = 0.0) -> WriteResult:
        """Adds documents, or replaces those with the same ids.

        Args:
            documents: as lines of a collection: `{"_id": …, "title": …, "text": …}`.
            wait_s: how long to wait until searches find them, in seconds, below the client's `timeout_s`; 0: not at all.
        """
        return self._run(calls.write(documents, wait_s))

    def delete(self, ids: Sequence[str], *, wait_s: float = 0.0) -> WriteResult:
        """Deletes documents; one that is not there is no error.

        Args:
            ids: of the documents.
            wait_s: as for `write`.
        """
        return self._run(calls.delete(ids, wait_s))

    def delete_where(
        self, wanted: Mapping[str, Any], *, all_documents: bool = False, wait_s: float = 0.0
    ) -> WriteResult:
        """Deletes what a filter finds when it is applied.

        Args:
            wanted: a filter as a search has it.
            all_documents: the filter may restrict nothing, and every document be deleted.
            wait_s: as for `write`.
        """
        return self._run(calls.delete_where(wanted, wait_s, all_documents=all_documents))

    def operation(self, operation_id: str) -> WriteResult:
        """How far a write has come, by its id."""
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
            texts: one or several.
            input_type: which tower reads them.
            model: the one that is expected, with or without its hash; another is refused.
        """
        return self._run(calls.embeddings(texts, input_type, model))

    def info(self) -> ServiceInfo:
        """What runs there: version, index, model, settings."""
        return self._run(calls.info())

    def health(self) -> bool:
        """Whether the process lives; never tried again."""
        return self._run(calls.health())

    def ready(self) -> Readiness:
        """Whether the service wants requests, and why not; never tried again."""
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
