"""What can go wrong with a request: a branch of the tree in `glow/errors.py` that only HTTP needs.

InputError
└── RequestError               a request that cannot be served as it is
    ├── MalformedJsonError     the body is not JSON
    ├── BodyTooLargeError      the body exceeds max_body_bytes
    ├── MediaTypeError         the body is not declared as JSON
    ├── RouteNotFoundError     no such path
    ├── MethodNotAllowedError  the path does not know this method
    └── NotAvailableError      a feature that this index or this version lacks
QueryError
└── QueryTooLongError          the query exceeds max_query_chars
GlowError
└── UnavailableError           the service cannot answer now
    ├── NotReadyError          the index is still loading, or a resource does not answer
    └── DrainingError          the service is about to stop
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glow.errors import GlowError, InputError, QueryError

__all__ = [
    "BodyTooLargeError",
    "DrainingError",
    "Fault",
    "HeadersTooLargeError",
    "MalformedHttpError",
    "MalformedJsonError",
    "MediaTypeError",
    "MethodNotAllowedError",
    "NotAvailableError",
    "NotReadyError",
    "QueryTooLongError",
    "RequestError",
    "RouteNotFoundError",
    "UnavailableError",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request's body.

    Attributes:
        pointer: JSON pointer (RFC 6901) to the place; "" is the whole body.
        detail: what was found and what was expected.
    """

    pointer: str
    detail: str


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


class NotAvailableError(RequestError):
    """The request asks for a feature that this index or this version lacks."""

    code = "not_available"


class QueryTooLongError(QueryError):
    """The query exceeds `max_query_chars`."""

    code = "query_too_long"


class UnavailableError(GlowError):
    """The service cannot answer now; the same request may succeed later."""

    code = "unavailable"


class NotReadyError(UnavailableError):
    """The index is still loading, or a resource does not answer."""

    code = "not_ready"


class DrainingError(UnavailableError):
    """The service is about to stop."""

    code = "draining"
