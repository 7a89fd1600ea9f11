"""What a call of the client can end in: a branch of the tree in `glow/errors.py`.

ClientError                      a call of the client that brought no usable answer
├── ConnectionFailedError        no connection, or one that was cut; the service may be gone
│   └── ResponseTimeoutError      connected, and nothing came in time
├── InvalidResponseError          an answer that is not GLOW's: no JSON, another shape, a redirect
└── ServiceError                 a problem that the service answered with (RFC 9457)
    ├── BadRequestError          400, 405, 408, 413, 415, 422, 431: the request must change
    ├── AccessDeniedError        401, 403: a key is needed, or is not known
    ├── NotFoundError            404: no such document or path
    ├── BusyError                429: too many requests; tried again as often as allowed
    ├── UnavailableServiceError  503: loading, draining or a resource is gone; tried again likewise
    ├── DeadlineExceededError      504: the deadline passed before the answer was made
    └── InternalServiceError     any other 5xx

A `ServiceError` has the `code` that the service sent, which is stable and listed in docs/reference/errors.md; the others have
the code of their class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glow.errors import GlowError

__all__ = [
    "AccessDeniedError",
    "BadRequestError",
    "BusyError",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "InternalServiceError",
    "InvalidResponseError",
    "NotFoundError",
    "RequestFault",
    "ResponseTimeoutError",
    "ServiceError",
    "UnavailableServiceError",
    "error_type_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestFault:
    """One thing wrong with a request.

    Attributes:
        pointer: JSON pointer (RFC 6901) to the place in the request's body; "" is the whole body.
        detail: what was found and what was expected.
    """

    pointer: str
    detail: str


class ClientError(GlowError):
    """A call of the client brought no usable answer."""

    code = "client_failed"


class ConnectionFailedError(ClientError):
    """There was no connection, or it was cut."""

    code = "connection_failed"


class ResponseTimeoutError(ConnectionFailedError):
    """The service was reached, and its answer did not come in time."""

    code = "response_timeout"


class InvalidResponseError(ClientError):
    """What answered does not speak GLOW's contract."""

    code = "invalid_response"


class ServiceError(ClientError):
    """The service answered with a problem.

    Args:
        detail: the problem's sentence for people.
        code: the problem's code, stable; a class's own where the answer was no problem document.
        status: HTTP status, 400 to 599.
        request_id: names the request in the service's log; "" where the answer had none.
        faults: the places of the request that are at fault.
        retry_after_s: seconds to wait before the next try, where the service said so.
    """

    code = "service_error"

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str = "",
        request_id: str = "",
        faults: Sequence[RequestFault] = (),
        retry_after_s: float | None = None,
    ) -> None:
        self.code = code or type(self).code
        named = f" (request {request_id})" if request_id else ""
        super().__init__(f"{status} {self.code}: {detail}{named}")
        self.status = status
        self.detail = detail
        self.request_id = request_id
        self.faults = tuple(faults)
        self.retry_after_s = retry_after_s


class BadRequestError(ServiceError):
    """The request cannot be served as it is."""

    code = "bad_request"


class AccessDeniedError(ServiceError):
    """A key is needed, or the key is not known."""

    code = "access_denied"


class NotFoundError(ServiceError):
    """There is no such document or path."""

    code = "not_found"


class BusyError(ServiceError):
    """The service has too many requests in work."""

    code = "busy"


class UnavailableServiceError(ServiceError):
    """The service cannot answer now."""

    code = "service_unavailable"


class DeadlineExceededError(ServiceError):
    """The deadline passed before the answer was made."""

    code = "deadline_exceeded"


class InternalServiceError(ServiceError):
    """The service failed at a request that may be well."""

    code = "service_failed"


_BY_STATUS: dict[int, type[ServiceError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    429: BusyError,
    503: UnavailableServiceError,
    504: DeadlineExceededError,
}


def error_type_of(status: int) -> type[ServiceError]:
    """The error of an HTTP status from 400 to 599."""
    return _BY_STATUS.get(status, BadRequestError if status < 500 else InternalServiceError)
