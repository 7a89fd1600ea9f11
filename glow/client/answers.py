"""Answers of the routes beside search."""

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
    """The answer to several searches at once.

    Attributes:
        request_id: names the whole batch in the service's log.
        took_ms: milliseconds of the whole batch.
        index: the version that answered all of them.
        results: in the order of the searches: what was found, or the problem of that one.
    """

    request_id: str
    took_ms: float
    index: IndexName
    results: tuple[SearchResult | ServiceError, ...]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of texts.

    Attributes:
        vectors: float32 [texts, dim] as tuples, L2-normalised, in the order of the texts.
        model: with its hash.
        tokens: word pieces read.
        truncated: positions of the texts that lost words to the model's budget.
    """

    vectors: tuple[tuple[float, ...], ...]
    model: str
    tokens: int
    truncated: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service wants requests; `reason` says why not."""

    is_ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What runs at the address.

    Attributes:
        version: of GLOW.
        index: version and model.
        documents: how many the index holds.
        dimensions: of a vector.
        fields: names of the text fields.
        retrievers: what `retriever` may be.
        components: what the index holds beside vectors, such as `impacts` or `columns`.
        columns: metadata field -> what is known of it, such as its `type`.
        raw: the whole answer as it came: device, settings and what is yet to be invented.
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
    """A document that was not taken: its place among those that were sent, from 0, its id where that could be read, and why."""

    place: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How far a write has come.

    Attributes:
        operation: its id, for `operation()`.
        state: `waiting`, `applied`, `visible` or `failed`.
        version: that holds it; "" while it waits.
        previous: the version before a deletion by filter, for `glow rollback`; "" for everything else.
        counts: documents `new`, `replaced`, `deleted`, `unchanged`, `unknown` of the batch that it was applied in.
        reason: why it failed.
        accepted: documents that were taken.
        rejects: the first hundred that were not.
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
    """Reads the answer of what writes, and of `GET /operations/{id}`."""
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
    """Reads the answer of `POST /search/batch`."""
    results = tuple(_item(item, node) for item in node.nodes("results", required=True))
    index = IndexName.read(node.node("index"))
    return BatchResult(node.text("request_id", ""), node.number("took_ms", 0.0), index, results)


def _item(item: Node, head: Node) -> SearchResult | ServiceError:
    status = item.integer("status", 200)
    if status < 400:
        return SearchResult.read(item, head)
    return problem_in(item.node("problem"), status)


def read_document(node: Node) -> Document:
    """Reads the answer of `GET /documents/{id}`."""
    return Document(node.text("id"), node.lists("fields"), node.mapping("metadata"))


def read_embeddings(node: Node) -> Embeddings:
    """Reads the answer of `POST /v1/embeddings` with vectors in base64."""
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
            f"the vector at {item.place} is no base64 of float32 numbers ({error}); is this service GLOW's?"
        ) from error
    if sys.byteorder == "big":
        numbers.byteswap()  # the contract says little-endian
    return tuple(numbers)


def read_info(node: Node) -> ServiceInfo:
    """Reads the answer of `GET /info`."""
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
