"""Errors of the client, a branch of the tree in `glow/errors.py`, and how responses become records or errors.

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

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn, TypeVar

import httpx
from msgspec import DecodeError, ValidationError, json

from glow.contract import InvalidValue, Problem
from glow.errors import GlowError


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


T = TypeVar("T")
_PLACE = re.compile(r"at `\$([^`]*)`")


def record_of(response: httpx.Response, kind: type[T]) -> T:
    """The record of a successful response; a problem, a redirect or another shape is raised as an error."""
    if response.is_error:
        raise problem_of(response)
    if not response.is_success:
        raise InvalidResponseError(
            f"{response.url} returned status {response.status_code}, expected no redirect; "
            "give the address of the service itself"
        )
    try:
        return json.decode(response.content, type=kind)
    except ValidationError as error:
        raise InvalidResponseError(
            f"the response is not a {kind.__name__}: {_with_pointer(error)}; "
            "check that the address is a GLOW service of a supported version"
        ) from error
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidResponseError(
            f"{response.url} returned {response.text!r:.80}, expected JSON ({error}); check the address"
        ) from error


def _with_pointer(error: ValidationError) -> str:
    """The message, with a JSON pointer in place of msgspec's `$.hits[0].score`."""
    return _PLACE.sub(lambda place: "at " + re.sub(r"[.\[]", "/", place[1]).replace("]", ""), str(error))


def problem_of(response: httpx.Response) -> ServiceError:
    """The error of a response with a status of 400 or more, with or without a problem document."""
    wait_s = retry_after_s(response.headers.get("Retry-After"))
    try:
        return problem_in(json.decode(response.content, type=Problem), response.status_code, wait_s)
    except (DecodeError, UnicodeDecodeError):  # an error page of a proxy
        detail = f"the body is not a problem document but {response.text!r:.80}; check the proxies before the service"
        return error_type_of(response.status_code)(detail, status=response.status_code, retry_after_s=wait_s)


def problem_in(problem: Problem, status: int, wait_s: float | None = None) -> ServiceError:
    """The error of a problem document (RFC 9457), with the seconds of `Retry-After`."""
    return error_type_of(status)(
        problem.detail or problem.title or "no reason was given",
        status=status,
        code=problem.code,
        request_id=problem.request_id,
        faults=problem.errors,
        retry_after_s=wait_s,
    )


def raise_failure(failure: httpx.RequestError, url: str) -> NoReturn:
    """Raises the error of a request without a response."""
    what = f"{type(failure).__name__} {failure}".strip()
    if isinstance(failure, httpx.ReadTimeout | httpx.WriteTimeout):
        raise ResponseTimeoutError(
            f"no response from {url} in time ({what}); raise timeout_s, or request less"
        ) from failure
    raise ConnectionFailedError(
        f"no response from {url} ({what}); check the address, and that the service runs"
    ) from failure


def retry_after_s(value: str | None) -> float | None:
    """Seconds to wait, at least 0, by a `Retry-After` header (RFC 9110, section 10.2.3); None without a valid one."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)
