"""Errors of HTTP requests: a branch of the tree in `glow/errors.py`."""

from collections.abc import Sequence

from glow.errors import Fault, GlowError, InputError, QueryError


class RequestError(InputError):
    """The request is not valid."""

    code = "invalid_request"

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class MalformedJsonError(RequestError):
    """The body is not JSON."""

    code = "malformed_json"


class BodyTooLargeError(RequestError):
    """The body exceeds `max_body_bytes`."""

    code = "body_too_large"


class MediaTypeError(RequestError):
    """The `Content-Type` is not JSON."""

    code = "unsupported_media_type"


class RouteNotFoundError(RequestError):
    """The path does not exist."""

    code = "not_found"


class MethodNotAllowedError(RequestError):
    """The path does not support this method."""

    code = "method_not_allowed"


class AnswerTooLargeError(RequestError):
    """The response would have too many bytes."""

    code = "answer_too_large"


class RequestIdError(RequestError):
    """The service has no search with this request id."""

    code = "unknown_request_id"


class NotAvailableError(RequestError):
    """The index lacks the requested feature."""

    code = "not_available"
    exit_code = 3


class QueryTooLongError(QueryError):
    """The query exceeds `max_query_chars`."""

    code = "query_too_long"


class KeyMissingError(GlowError):
    """The request has no API key."""

    code = "key_missing"


class KeyRefusedError(GlowError):
    """The API key is unknown or not allowed here."""

    code = "key_refused"


class RateLimitError(GlowError):
    """An API key exceeds its rate limit."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SwapRefusedError(GlowError):
    """The requested index version cannot be served. The live version continues."""

    code = "swap_refused"


class DeadlineError(GlowError):
    """The deadline passed before the response was ready."""

    code = "deadline"


class OverloadedError(GlowError):
    """Too many requests are in work. Retry later."""

    code = "overloaded"


class NotReadyError(GlowError):
    """The index is still loading, or a resource does not respond."""

    code = "not_ready"


class DrainingError(GlowError):
    """The service is shutting down."""

    code = "draining"
