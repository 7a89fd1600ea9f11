"""A typed client of the HTTP service, synchronous and for asyncio; its results are the records of `glow.contract`."""

from glow.client.answers import BatchResult, Embeddings, Readiness
from glow.client.asynchronous import AsyncGlowClient
from glow.client.errors import (
    AccessDeniedError,
    BadRequestError,
    BusyError,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InternalServiceError,
    InvalidResponseError,
    NotFoundError,
    ResponseTimeoutError,
    ServiceError,
    UnavailableServiceError,
)
from glow.client.options import PagedOptions, SearchOptions, SearchRequest
from glow.client.retry import RetryPolicy
from glow.client.sync import GlowClient
from glow.contract import Hit, Info, OperationResult, Query, SearchResult

__all__ = [
    "AccessDeniedError", "AsyncGlowClient", "BadRequestError", "BatchResult", "BusyError", "ClientError", "ConnectionFailedError",
    "DeadlineExceededError", "Embeddings", "GlowClient", "Hit", "Info", "InternalServiceError", "InvalidResponseError",
    "NotFoundError", "OperationResult", "PagedOptions", "Query", "Readiness", "ResponseTimeoutError", "RetryPolicy",
    "SearchOptions", "SearchRequest", "SearchResult", "ServiceError", "UnavailableServiceError",
]  # fmt: skip
