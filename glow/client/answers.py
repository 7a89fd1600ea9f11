"""Results of calls that are not a record of `glow.contract` as it was received."""

import sys
from array import array
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass

from glow.client.errors import InvalidResponseError, ServiceError
from glow.client.problems import problem_in
from glow.contract import BatchItem, DocumentResult, EmbeddingsResult, IndexName, SearchResult
from glow.contract import BatchResult as ReceivedBatch
from glow.records import Document

__all__ = ["BatchResult", "Embeddings", "Readiness", "batch_of", "document_of", "embeddings_of"]


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


def batch_of(received: ReceivedBatch) -> BatchResult:
    """The results of a batch."""
    results = tuple(_search_of(item, received) for item in received.results)
    return BatchResult(received.request_id, received.took_ms, received.index, results)


def _search_of(item: BatchItem, batch: ReceivedBatch) -> SearchResult | ServiceError:
    if item.problem is not None:
        return problem_in(item.problem, item.status)
    if item.query is None:
        raise InvalidResponseError(
            f"a search of the batch has status {item.status}, but neither a result nor a problem; "
            "check that the address is a GLOW service of a supported version"
        )
    return SearchResult(
        request_id=batch.request_id,
        took_ms=batch.took_ms,
        degraded=item.degraded or (),
        index=item.index or batch.index,
        query=item.query,
        hits=item.hits or (),
        confidence=item.confidence,
        facets=item.facets,
        timings_ms=item.timings_ms or {},
    )


def document_of(received: DocumentResult) -> Document:
    """A document, with the values of each field as a tuple."""
    fields = received.fields.items()
    values = {name: (value,) if isinstance(value, str) else value for name, value in fields}
    return Document(received.id, values, received.metadata)


def embeddings_of(received: EmbeddingsResult) -> Embeddings:
    """Vectors that were sent in base64."""
    data = sorted(received.data, key=lambda item: item.index)
    usage = received.usage
    vectors = tuple(_vector(str(item.embedding), item.index) for item in data)
    return Embeddings(vectors, received.model, usage.total_tokens, usage.truncated)


def _vector(text: str, place: int) -> tuple[float, ...]:
    numbers = array("f")
    try:
        numbers.frombytes(b64decode(text, validate=True))
    except (Base64Error, ValueError) as error:
        raise InvalidResponseError(
            f"vector {place} is not base64 of float32 numbers ({error}); check that the service is GLOW"
        ) from error
    if sys.byteorder == "big":
        numbers.byteswap()  # the API sends little-endian numbers
    return tuple(numbers)
