"""Converts HTTP responses to records or to errors."""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn, TypeVar

import httpx
from msgspec import DecodeError, ValidationError, json

from glow.client.errors import (
    ConnectionFailedError,
    InvalidResponseError,
    ResponseTimeoutError,
    ServiceError,
    error_type_of,
)
from glow.contract import Problem

__all__ = ["problem_in", "problem_of", "raise_failure", "record_of", "retry_after_s"]

T = TypeVar("T")
_PLACE = re.compile(r"at `\$([^`]*)`")


def record_of(response: httpx.Response, kind: type[T]) -> T:
    """The record of a successful response.

    Args:
        response: the response.
        kind: a record of `glow.contract`.

    Raises:
        ServiceError: if the service responded with a problem.
        InvalidResponseError: if the response is a redirect, or not such a record.
    """
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
    """The error of a problem document (RFC 9457).

    Args:
        problem: the document.
        status: HTTP status, 400 to 599.
        wait_s: seconds to wait, from `Retry-After`.
    """
    return error_type_of(status)(
        problem.detail or problem.title or "no reason was given",
        status=status,
        code=problem.code,
        request_id=problem.request_id,
        faults=problem.errors,
        retry_after_s=wait_s,
    )


def raise_failure(failure: httpx.RequestError, url: str) -> NoReturn:
    """Raises the error of a request without a response.

    Raises:
        ResponseTimeoutError: if the connection was made, but the response did not arrive in time.
        ConnectionFailedError: otherwise.
    """
    what = f"{type(failure).__name__} {failure}".strip()
    if isinstance(failure, httpx.ReadTimeout | httpx.WriteTimeout):
        raise ResponseTimeoutError(
            f"no response from {url} in time ({what}); raise timeout_s, or request less"
        ) from failure
    raise ConnectionFailedError(
        f"no response from {url} ({what}); check the address, and that the service runs"
    ) from failure


def retry_after_s(value: str | None) -> float | None:
    """Seconds to wait by a `Retry-After` header (RFC 9110, section 10.2.3): a number or a date.

    Args:
        value: the header; None if there is none.

    Returns:
        Seconds, at least 0; None if there is no header or it is invalid.
    """
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
