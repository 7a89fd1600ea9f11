"""Errors of the client: a branch of the tree in `glow/errors.py`.

ClientError                      a call of the client failed
├── ConnectionFailedError        no connection, or it broke
│   └── ResponseTimeoutError      connected, but no response in time
├── InvalidResponseError          not a response of GLOW: no JSON, another shape, a redirect
└── ServiceError                 the service responded with a problem (RFC 9457)
    ├── BadRequestError          400, 405, 408, 413, 415, 422, 431: the request must change
    ├── AccessDeniedError        401, 403: no API key, or an unknown one
    ├── NotFoundError            404: no such document or path
    ├── BusyError                429: too many requests; retried as often as allowed
    ├── UnavailableServiceError  503: loading, draining or a resource is gone; retried likewise
    ├── DeadlineExceededError      504: the deadline passed before the response was ready
    └── InternalServiceError     any other 5xx

A `ServiceError` has the `code` that the service sent, which is stable and listed in docs/reference/errors.md; the others have
the code of their class.
"""

from collections.abc import Sequence

from glow.contract import InvalidValue
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
    "ResponseTimeoutError",
    "ServiceError",
    "UnavailableServiceError",
    "error_type_of",
]  # fmt: skip


class ClientError(GlowError):
    """A call of the client failed."""

    code = "client_failed"


class ConnectionFailedError(ClientError):
    """The connection failed or broke."""

    code = "connection_failed"


class ResponseTimeoutError(ConnectionFailedError):
    """Connected, but no response within `timeout_s`."""

    code = "response_timeout"


class InvalidResponseError(ClientError):
    """The response does not come from GLOW."""

    code = "invalid_response"


class ServiceError(ClientError):
    """The service responded with a problem.

    Args:
        detail: the problem's sentence for people.
        code: the problem's code, stable; the class's own if the response was no problem document.
        status: HTTP status, 400 to 599.
        request_id: names the request in the service's log; "" if the response had none.
        faults: the places of the request that are at fault.
        retry_after_s: seconds to wait before the next try, if the service said so.
    """

    code = "service_error"

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str = "",
        request_id: str = "",
        faults: Sequence[InvalidValue] = (),
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
    """The request is not valid."""

    code = "bad_request"


class AccessDeniedError(ServiceError):
    """The request has no API key, or an unknown one."""

    code = "access_denied"


class NotFoundError(ServiceError):
    """The document or path does not exist."""

    code = "not_found"


class BusyError(ServiceError):
    """The service has too many requests in work. Retry later."""

    code = "busy"


class UnavailableServiceError(ServiceError):
    """The service is temporarily unavailable."""

    code = "service_unavailable"


class DeadlineExceededError(ServiceError):
    """The deadline passed before the response was ready."""

    code = "deadline_exceeded"


class InternalServiceError(ServiceError):
    """The service failed. The request may be valid."""

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
