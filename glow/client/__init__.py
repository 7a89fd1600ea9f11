"""A typed client of the HTTP service, synchronous and for asyncio; its results are the records of `glow.contract`."""

from glow.client.calls import PagedOptions, Readiness, SearchOptions, SearchRequest
from glow.client.clients import AsyncGlowClient, GlowClient, RetryPolicy
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
from glow.contract import Hit, Info, OperationResult, Query, SearchResult

__all__ = [
    "AccessDeniedError", "AsyncGlowClient", "BadRequestError", "BusyError", "ClientError", "ConnectionFailedError",
    "DeadlineExceededError", "GlowClient", "Hit", "Info", "InternalServiceError", "InvalidResponseError",
    "NotFoundError", "OperationResult", "PagedOptions", "Query", "Readiness", "ResponseTimeoutError", "RetryPolicy",
    "SearchOptions", "SearchRequest", "SearchResult", "ServiceError", "UnavailableServiceError",
]  # fmt: skip
