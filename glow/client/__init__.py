"""A typed client of the HTTP service, synchronous and for asyncio; httpx is its only dependency."""

from glow.client.answers import BatchResult, Embeddings, Readiness, RejectedDocument, ServiceInfo, WriteResult
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
    RequestFault,
    ResponseTimeoutError,
    ServiceError,
    UnavailableServiceError,
)
from glow.client.explanations import ExplainedTerm, Explanation, LexicalTerm, QueryTerm, WordDelta
from glow.client.options import PagedOptions, SearchOptions, SearchRequest
from glow.client.results import AnalyzedQuery, Facet, FacetCount, IndexName, Passage, SearchHit, SearchResult
from glow.client.retry import RetryPolicy
from glow.client.sync import GlowClient

__all__ = [
    "AccessDeniedError",
    "AnalyzedQuery",
    "AsyncGlowClient",
    "BadRequestError",
    "BatchResult",
    "BusyError",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "Embeddings",
    "ExplainedTerm",
    "Explanation",
    "Facet",
    "FacetCount",
    "GlowClient",
    "IndexName",
    "InternalServiceError",
    "InvalidResponseError",
    "LexicalTerm",
    "NotFoundError",
    "PagedOptions",
    "Passage",
    "QueryTerm",
    "Readiness",
    "RejectedDocument",
    "RequestFault",
    "ResponseTimeoutError",
    "RetryPolicy",
    "SearchHit",
    "SearchOptions",
    "SearchRequest",
    "SearchResult",
    "ServiceError",
    "ServiceInfo",
    "UnavailableServiceError",
    "WordDelta",
    "WriteResult",
]  # fmt: skip
