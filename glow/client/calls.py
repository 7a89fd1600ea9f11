"""One function per route: the request to send, and how to read its response. Both clients use them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, Unpack
from urllib.parse import quote

import httpx

from glow.client import answers
from glow.client.answers import BatchResult, Embeddings, Readiness, ServiceInfo, WriteResult
from glow.client.errors import ServiceError
from glow.client.node import Node
from glow.client.options import SearchOptions, SearchRequest
from glow.client.problems import object_of, problem_of
from glow.client.results import SearchResult
from glow.errors import ConfigError
from glow.records import Document

__all__ = [
    "Call", "delete", "delete_where", "document", "embeddings", "feedback", "health", "info", "operation", "ready", "search",
    "search_batch", "write",
]  # fmt: skip

T = TypeVar("T")

MOST_PATH_CHARACTERS = 32_000
"""Longest percent-encoded id in a path: the service accepts 64 KiB of request line and headers."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how to read its response.

    Attributes:
        method: GET or POST.
        path: path relative to the service's address.
        read: converts a response to the call's result, or raises a `ClientError`.
        body: JSON to send; None sends no body.
        is_repeatable: whether a 429 or 503 may be retried; for health routes it is the result.
    """

    method: Literal["GET", "POST"]
    path: str
    read: Callable[[httpx.Response], T]
    body: Mapping[str, Any] | None = None
    is_repeatable: bool = True


def _reading(read: Callable[[Node], T]) -> Callable[[httpx.Response], T]:
    return lambda response: read(object_of(response))


def search(query: str | None = None, **options: Unpack[SearchOptions]) -> Call[SearchResult]:
    """`POST /v1/search`."""
    body = _search_body({"query": query, **options})
    return Call("POST", "/v1/search", _reading(SearchResult.read), body)


def search_batch(searches: Sequence[str | SearchRequest]) -> Call[BatchResult]:
    """`POST /v1/search/batch`."""
    bodies = [_search_body({"query": one} if isinstance(one, str) else one) for one in searches]
    return Call("POST", "/v1/search/batch", _reading(answers.read_batch), {"searches": bodies})


def _search_body(request: SearchRequest) -> dict[str, Any]:
    body: dict[str, Any] = {name: value for name, value in request.items() if value is not None}
    facets = request.get("facets")
    if facets is not None:
        body["facets"] = [{"field": facet} if isinstance(facet, str) else facet for facet in facets]
    return body


def document(document_id: str) -> Call[Document]:
    """`GET /v1/documents/{id}`.

    Raises:
        ConfigError: if the id is empty, or cannot be part of a path.
    """
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
    return Call("GET", f"/v1/documents/{path}", _reading(answers.read_document))


def write(documents: Sequence[Mapping[str, Any]], wait_s: float = 0.0) -> Call[WriteResult]:
    """`POST /v1/documents`."""
    return _write("/v1/documents", {"documents": list(documents)}, wait_s)


def delete(ids: Sequence[str], wait_s: float = 0.0) -> Call[WriteResult]:
    """`POST /v1/documents/delete` with ids."""
    return _write("/v1/documents/delete", {"ids": list(ids)}, wait_s)


def delete_where(
    wanted: Mapping[str, Any], wait_s: float = 0.0, *, all_documents: bool = False
) -> Call[WriteResult]:
    """`POST /v1/documents/delete` with a filter."""
    body = {"filter": wanted, **({"all": True} if all_documents else {})}
    return _write("/v1/documents/delete", body, wait_s)


def operation(operation_id: str) -> Call[WriteResult]:
    """`GET /v1/operations/{id}`."""
    return Call("GET", f"/v1/operations/{quote(operation_id, safe='')}", _reading(answers.read_write))


def feedback(
    request_id: str,
    document_id: str,
    kind: Literal["click", "like", "dislike"] = "click",
    *,
    rank: int | None = None,
    dwell_s: float | None = None,
    user: str | None = None,
) -> Call[None]:
    """`POST /v1/feedback`."""
    given = {"rank": rank, "dwell_s": dwell_s, "user": user}
    body: dict[str, Any] = {"request_id": request_id, "id": document_id, "kind": kind}
    body |= {name: value for name, value in given.items() if value is not None}
    return Call("POST", "/v1/feedback", _reading(lambda _: None), body)


def _write(path: str, body: Mapping[str, Any], wait_s: float) -> Call[WriteResult]:
    waiting = f"?wait=visible&wait_s={wait_s:g}" if wait_s > 0 else ""
    # A refused write (429, 503) was not accepted, so it may be retried; one whose connection broke may have been.
    return Call("POST", path + waiting, _reading(answers.read_write), body)


def embeddings(
    texts: str | Sequence[str], input_type: Literal["query", "document"] = "query", model: str | None = None
) -> Call[Embeddings]:
    """`POST /v1/embeddings`; base64 takes a third of the bytes of decimal numbers."""
    body: dict[str, Any] = {
        "input": texts if isinstance(texts, str) else list(texts),
        "input_type": input_type,
        "encoding_format": "base64",
    }
    if model is not None:
        body["model"] = model
    return Call("POST", "/v1/embeddings", _reading(answers.read_embeddings), body)


def info() -> Call[ServiceInfo]:
    """`GET /info`."""
    return Call("GET", "/info", _reading(answers.read_info))


def health() -> Call[bool]:
    """`GET /healthz`."""
    return Call("GET", "/healthz", lambda response: bool(object_of(response).value), is_repeatable=False)


def ready() -> Call[Readiness]:
    """`GET /readyz`; a 503 is a valid result."""
    return Call("GET", "/readyz", _read_readiness, is_repeatable=False)


def _read_readiness(response: httpx.Response) -> Readiness:
    if response.status_code != 503:
        object_of(response)
        return Readiness(True)
    problem: ServiceError = problem_of(response)
    return Readiness(False, problem.detail)
