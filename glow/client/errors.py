"""Errors of the client, a branch of the tree in `glow/errors.py`. docs/reference/errors.md lists the codes."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from msgspec import DecodeError, json

from glow.contract import InvalidValue, Problem
from glow.errors import GlowError


class ClientError(GlowError, code="client_failed"):
    """A call of the client failed."""


class ConnectionFailedError(ClientError, code="connection_failed"):
    """The connection failed or broke."""


class ResponseTimeoutError(ConnectionFailedError, code="response_timeout"):
    """Connected, but no response within `timeout_s`."""


class InvalidResponseError(ClientError, code="invalid_response"):
    """The response does not come from GLOW: no JSON, another shape, a redirect."""


class ServiceError(ClientError, code="service_error"):
    """The service responded with a problem (RFC 9457).

    Args:
        detail: the problem's sentence for people.
        code: the problem's code, stable; the class's own if the response was no problem document.
        status: HTTP status, 400 to 599.
        request_id: names the request in the service's log; "" if the response had none.
        faults: the places of the request that are at fault.
        retry_after_s: seconds to wait before the next try, if the service said so.
    """

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
        request = f" (request {request_id})" if request_id else ""
        super().__init__(f"{status} {self.code}: {detail}{request}")
        self.status, self.detail, self.request_id = status, detail, request_id
        self.faults, self.retry_after_s = tuple(faults), retry_after_s


class BadRequestError(ServiceError, code="bad_request"):
    """The request is not valid: any other 4xx."""


class AccessDeniedError(ServiceError, code="access_denied"):
    """The request has no API key, or an unknown one: 401, 403."""


class NotFoundError(ServiceError, code="not_found"):
    """The document or path does not exist: 404."""


class BusyError(ServiceError, code="busy"):
    """The service has too many requests in work: 429. Retry later."""


class UnavailableServiceError(ServiceError, code="service_unavailable"):
    """The service is temporarily unavailable: 503."""


class DeadlineExceededError(ServiceError, code="deadline_exceeded"):
    """The deadline passed before the response was ready: 504."""


class InternalServiceError(ServiceError, code="service_failed"):
    """The service failed: any other 5xx. The request may be valid."""


_BY_STATUS: dict[int, type[ServiceError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    429: BusyError,
    503: UnavailableServiceError,
    504: DeadlineExceededError,
}


def problem_of(response: httpx.Response) -> ServiceError:
    """The error of a response with a status of 400 or more, with or without a problem document."""
    wait_s = retry_after_s(response.headers)
    try:
        return problem_in(json.decode(response.content, type=Problem), response.status_code, wait_s)
    except (DecodeError, UnicodeDecodeError):  # an error page of a proxy
        text = response.content[:80].decode(errors="replace")
        detail = f"the body is not a problem document but {text!r}; check the proxies before the service"
        return problem_in(Problem(detail=detail), response.status_code, wait_s)


def problem_in(problem: Problem, status: int, wait_s: float | None = None) -> ServiceError:
    """The error of a problem document, with the seconds of `Retry-After`."""
    kind = _BY_STATUS.get(status, BadRequestError if status < 500 else InternalServiceError)
    return kind(
        problem.detail or problem.title or "no reason was given",
        status=status,
        code=problem.code,
        request_id=problem.request_id,
        faults=problem.errors,
        retry_after_s=wait_s,
    )


def failure_of(failure: httpx.RequestError, url: str) -> ConnectionFailedError:
    """The error of a request without a response."""
    what = f"{type(failure).__name__} {failure}".strip()
    if isinstance(failure, httpx.ReadTimeout | httpx.WriteTimeout):
        return ResponseTimeoutError(
            f"no response from {url} in time ({what}); raise timeout_s, or request less"
        )
    return ConnectionFailedError(
        f"no response from {url} ({what}); check the address, and that the service runs"
    )


def retry_after_s(headers: httpx.Headers) -> float | None:
    """Seconds to wait, at least 0, by a `Retry-After` header (RFC 9110, section 10.2.3); None without a valid one."""
    value = headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # no date, or one without a time zone
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
