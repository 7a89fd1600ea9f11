"""What can go wrong with a request: a branch of the tree in `glow/errors.py` that only HTTP needs.

InputError
└── RequestError               a request that cannot be served as it is
    ├── MalformedJsonError     the body is not JSON
    ├── BodyTooLargeError      the body exceeds max_body_bytes
    ├── MediaTypeError         the body is not declared as JSON
    ├── RouteNotFoundError     no such path
    ├── MethodNotAllowedError  the path does not know this method
    ├── AnswerTooLargeError    the answer would exceed max_answer_bytes
    ├── RequestIdError         feedback names a search that was not answered here
    └── NotAvailableError      a feature that this index or this version lacks
QueryError
└── QueryTooLongError          the query exceeds max_query_chars
GlowError
├── AccessError                the request comes from someone who may not send it
│   ├── KeyMissingError        a key is needed, and none came
│   └── KeyRefusedError        the key is not one of those that are known
├── RateLimitError             a key sends more requests than it may
├── SwapRefusedError           the index version that is asked for cannot be served
├── DeadlineError              the deadline passed before the answer was made
└── UnavailableError           the service cannot answer now
    ├── OverloadedError        as many requests as can be served are in work
    ├── NotReadyError          the index is still loading, or a resource does not answer
    └── DrainingError          the service is about to stop
"""

from collections.abc import Sequence

from glow.errors import Fault, GlowError, InputError, QueryError

__all__ = [
    "AccessError", "AnswerTooLargeError", "BodyTooLargeError", "DeadlineError", "DrainingError", "Fault", "HeadersTooLargeError",
    "HeadersTooLateError", "KeyMissingError", "KeyRefusedError", "MalformedHttpError", "MalformedJsonError",
    "MediaTypeError", "MethodNotAllowedError", "NotAvailableError", "NotReadyError", "OverloadedError",
    "QueryTooLongError", "RateLimitError", "RequestError", "RequestIdError", "RouteNotFoundError", "SwapRefusedError",
    "UnavailableError",
]  # fmt: skip


class RequestError(InputError):
    """A request cannot be served as it is.

    Args:
        message: one sentence for people.
        faults: the places in the body, if the body is at fault.
    """

    code = "invalid_request"

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class MalformedHttpError(RequestError):
    """The bytes are no HTTP request."""

    code = "malformed_http"


class HeadersTooLateError(RequestError):
    """The headers do not end in time."""

    code = "header_timeout"


class HeadersTooLargeError(RequestError):
    """The headers do not end within the bound."""

    code = "headers_too_large"


class MalformedJsonError(RequestError):
    """The body is not JSON."""

    code = "malformed_json"


class BodyTooLargeError(RequestError):
    """The body exceeds `max_body_bytes`."""

    code = "body_too_large"


class MediaTypeError(RequestError):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"


class RouteNotFoundError(RequestError):
    """There is no such path."""

    code = "not_found"


class MethodNotAllowedError(RequestError):
    """The path does not know this method."""

    code = "method_not_allowed"


class AnswerTooLargeError(RequestError):
    """The answer would exceed `max_answer_bytes`."""

    code = "answer_too_large"


class RequestIdError(RequestError):
    """Feedback names a search that this service did not answer."""

    code = "unknown_request_id"


class NotAvailableError(RequestError):
    """The request asks for a feature that this index or this version lacks."""

    code = "not_available"
    exit_code = 3


class QueryTooLongError(QueryError):
    """The query exceeds `max_query_chars`."""

    code = "query_too_long"


class AccessError(GlowError):
    """The request comes from someone who may not send it."""

    code = "access"


class KeyMissingError(AccessError):
    """A key is needed, and none came."""

    code = "key_missing"


class KeyRefusedError(AccessError):
    """The key is not one of those that are known."""

    code = "key_refused"


class RateLimitError(GlowError):
    """A key sends more requests than it may.

    Args:
        message: one sentence for people.
        retry_after_s: when the next request will pass, in seconds.
    """

    code = "rate_limited"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SwapRefusedError(GlowError):
    """The index version that is asked for cannot be served; the live one goes on."""

    code = "swap_refused"


class DeadlineError(GlowError):
    """The deadline passed before the answer was made."""

    code = "deadline"


class UnavailableError(GlowError):
    """The service cannot answer now; the same request may succeed later."""

    code = "unavailable"


class OverloadedError(UnavailableError):
    """As many requests as can be served are in work."""

    code = "overloaded"


class NotReadyError(UnavailableError):
    """The index is still loading, or a resource does not answer."""

    code = "not_ready"


class DrainingError(UnavailableError):
    """The service is about to stop."""

    code = "draining"
