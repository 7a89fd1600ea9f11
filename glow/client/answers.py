"""Responses of the routes other than search."""

import sys
from array import array
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glow.client.errors import InvalidResponseError, ServiceError
from glow.client.node import Node
from glow.client.problems import problem_in
from glow.client.results import IndexName, SearchResult
from glow.records import Document

__all__ = [
    "BatchResult", "Embeddings", "Readiness", "RejectedDocument", "ServiceInfo", "WriteResult", "read_batch", "read_document",
    "read_embeddings", "read_info", "read_write",
]  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The service's version, index and model.

    Attributes:
        version: of GLOW.
        index: its version and model.
        documents: number of documents in the index.
        dimensions: dimensions of a vector.
        fields: names of the text fields.
        retrievers: valid values of the option `retriever`.
        components: components of the index besides vectors, such as `impacts` or `columns`.
        columns: metadata field -> its properties, such as `type`.
        raw: the whole response as received, with device, settings and members of newer services.
    """

    version: str
    index: IndexName
    documents: int
    dimensions: int
    fields: tuple[str, ...]
    retrievers: tuple[str, ...]
    components: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Any]]
    raw: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class RejectedDocument:
    """A rejected document: its position among those sent, from 0, its id ("" if unreadable), and the reason."""

    place: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """State of a write.

    Attributes:
        operation: its id, for `operation()`.
        state: `waiting`, `applied`, `visible` or `failed`.
        version: index version that contains it; "" while it waits.
        previous: the version before a deletion by filter, for `glow rollback`; "" for everything else.
        counts: documents `new`, `replaced`, `deleted`, `unchanged`, `unknown` of the batch that it was applied in.
        reason: why it failed; "" otherwise.
        accepted: number of accepted documents.
        rejects: the first hundred rejected documents.
    """

    operation: str
    state: str
    version: str
    previous: str
    counts: Mapping[str, float]
    reason: str
    accepted: int
    rejects: tuple[RejectedDocument, ...]


def read_write(node: Node) -> WriteResult:
    """Reads the response to a write, or to `GET /operations/{id}`."""
    rejects = tuple(
        RejectedDocument(item.integer("place"), str(item.value.get("id") or ""), item.text("reason", ""))
        for item in node.nodes("rejects")
    )
    return WriteResult(
        operation=node.text("operation"),
        state=node.text("state"),
        version=node.text("version", ""),
        previous=node.text("previous", ""),
        counts=node.numbers("counts"),
        reason=node.text("reason", ""),
        accepted=node.integer("accepted", 0),
        rejects=rejects,
    )


def read_batch(node: Node) -> BatchResult:
    """Reads the response of `POST /search/batch`."""
    results = tuple(_item(item, node) for item in node.nodes("results", required=True))
    index = IndexName.read(node.node("index"))
    return BatchResult(node.text("request_id", ""), node.number("took_ms", 0.0), index, results)


def _item(item: Node, head: Node) -> SearchResult | ServiceError:
    status = item.integer("status", 200)
    if status < 400:
        return SearchResult.read(item, head)
    return problem_in(item.node("problem"), status)


def read_document(node: Node) -> Document:
    """Reads the response of `GET /documents/{id}`."""
    return Document(node.text("id"), node.lists("fields"), node.mapping("metadata"))


def read_embeddings(node: Node) -> Embeddings:
    """Reads the response of `POST /v1/embeddings` with vectors in base64."""
    data = sorted(node.nodes("data", required=True), key=lambda item: item.integer("index"))
    usage = Node(node.mapping("usage"), "/usage")
    truncated = tuple(int(place) for place in usage.items("truncated"))
    vectors = tuple(_vector(item) for item in data)
    return Embeddings(vectors, node.text("model", ""), usage.integer("total_tokens", 0), truncated)


def _vector(item: Node) -> tuple[float, ...]:
    numbers = array("f")
    try:
        numbers.frombytes(b64decode(item.text("embedding"), validate=True))
    except (Base64Error, ValueError) as error:
        raise InvalidResponseError(
            f"the vector at {item.place} is not base64 of float32 numbers ({error}); check that the service is GLOW"
        ) from error
    if sys.byteorder == "big":
        numbers.byteswap()  # the API sends little-endian numbers
    return tuple(numbers)


def read_info(node: Node) -> ServiceInfo:
    """Reads the response of `GET /info`."""
    index = node.node("index")
    return ServiceInfo(
        version=node.text("version", ""),
        index=IndexName.read(index),
        documents=index.integer("documents", 0),
        dimensions=index.integer("dimensions", 0),
        fields=tuple(item.text("name") for item in node.nodes("fields")),
        retrievers=node.texts("retrievers"),
        components=index.texts("components"),
        columns=index.mapping("columns"),
        raw=node.value,
    )
