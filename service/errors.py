"""Errors of HTTP requests: a branch of the tree in `glow/errors.py`."""

from collections.abc import Sequence

from glow.errors import Fault, GlowError, InputError, QueryError


class RequestError(InputError, code="invalid_request"):
    """The request is not valid."""

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class MalformedJsonError(RequestError, code="malformed_json"):
    """The body is not JSON."""


class BodyTooLargeError(RequestError, code="body_too_large"):
    """The body exceeds `max_body_bytes`."""


class MediaTypeError(RequestError, code="unsupported_media_type"):
    """The `Content-Type` is not JSON."""


class RouteNotFoundError(RequestError, code="not_found"):
    """The path does not exist."""


class MethodNotAllowedError(RequestError, code="method_not_allowed"):
    """The path does not support this method."""


class AnswerTooLargeError(RequestError, code="answer_too_large"):
    """The response would have too many bytes."""


class RequestIdError(RequestError, code="unknown_request_id"):
    """The service has no search with this request id."""


class NotAvailableError(RequestError, code="not_available", exit_code=3):
    """The index lacks the requested feature."""


class QueryTooLongError(QueryError, code="query_too_long"):
    """The query exceeds `max_query_chars`."""


class KeyMissingError(GlowError, code="key_missing"):
    """The request has no API key."""


class KeyRefusedError(GlowError, code="key_refused"):
    """The API key is unknown or not allowed here."""


class RateLimitError(GlowError, code="rate_limited"):
    """An API key exceeds its rate limit."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SwapRefusedError(GlowError, code="swap_refused"):
    """The requested index version cannot be served. The live version continues."""


class DeadlineError(GlowError, code="deadline"):
    """The deadline passed before the response was ready."""


class OverloadedError(GlowError, code="overloaded"):
    """Too many requests are in work. Retry later."""


class NotReadyError(GlowError, code="not_ready"):
    """The index is still loading, or a resource does not respond."""


class DrainingError(GlowError, code="draining"):
    """The service is shutting down."""
