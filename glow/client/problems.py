"""Converts HTTP responses to JSON objects or to errors."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn

import httpx

from glow.client.errors import (
    ConnectionFailedError,
    InvalidResponseError,
    RequestFault,
    ResponseTimeoutError,
    ServiceError,
    error_type_of,
)
from glow.client.node import Node

__all__ = ["object_of", "problem_in", "problem_of", "raise_failure", "retry_after_s"]


def object_of(response: httpx.Response) -> Node:
    """The JSON object of a successful response.

    Raises:
        ServiceError: if the service responded with a problem.
        InvalidResponseError: if the response is a redirect, or not a JSON object.
    """
    if response.is_error:
        raise problem_of(response)
    if not response.is_success:
        raise InvalidResponseError(
            f"{response.url} returned status {response.status_code}, expected no redirect; "
            "give the address of the service itself"
        )
    try:
        return Node(response.json())
    except ValueError as error:
        raise InvalidResponseError(
            f"{response.url} returned {response.text!r:.80}, expected JSON ({error}); check the address"
        ) from error


def problem_of(response: httpx.Response) -> ServiceError:
    """The error of a response with a status of 400 or more, with or without a problem document."""
    wait_s = retry_after_s(response.headers.get("Retry-After"))
    try:
        return problem_in(Node(response.json()), response.status_code, wait_s)
    except (ValueError, InvalidResponseError):  # an error page of a proxy
        detail = f"the body is not a problem document but {response.text!r:.80}; check the proxies before the service"
        return error_type_of(response.status_code)(detail, status=response.status_code, retry_after_s=wait_s)


def problem_in(node: Node, status: int, wait_s: float | None = None) -> ServiceError:
    """The error of a problem document (RFC 9457); all its members are optional.

    Args:
        node: the document.
        status: HTTP status, 400 to 599.
        wait_s: seconds to wait, from `Retry-After`.
    """
    faults = [
        RequestFault(fault.text("pointer", ""), fault.text("detail", "")) for fault in node.nodes("errors")
    ]
    detail = node.text("detail", "") or node.text("title", "no reason was given")
    return error_type_of(status)(
        detail,
        status=status,
        code=node.text("code", ""),
        request_id=node.text("request_id", ""),
        faults=faults,
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
