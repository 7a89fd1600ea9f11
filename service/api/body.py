"""Reading a JSON body: its declaration, its size while it streams in, its syntax."""

import asyncio
import math
import time
from typing import Any

import orjson
from starlette.requests import Request

from service.errors import (
    BodyTooLargeError,
    DeadlineError,
    Fault,
    MalformedJsonError,
    MediaTypeError,
    RequestError,
)

__all__ = ["read_object"]

SMALL_BYTES = 64 << 10
"""Parsed in less than a millisecond; a larger body is parsed off the event loop."""
_CHARSETS = ("", "utf-8", "utf8")


async def read_object(request: Request, max_bytes: int, deadline: float = math.inf) -> dict[str, Any]:
    """Reads the body as a JSON object; no more than `max_bytes` of it are ever held.

    A key that comes twice takes its last value, as in most JSON readers.

    Raises:
        MediaTypeError: not declared as `application/json` in UTF-8, or compressed.
        BodyTooLargeError: longer than `max_bytes`, declared or real.
        MalformedJsonError: not JSON; NaN, Infinity and lone surrogates are none either.
        RequestError: JSON, but no object.
        DeadlineError: the body was not there by `deadline` (of `time.perf_counter()`).
    """
    _check_declaration(request)
    try:
        async with asyncio.timeout(
            None if deadline == math.inf else max(deadline - time.perf_counter(), 0.0)
        ):
            body = await _read(request, max_bytes)
    except TimeoutError as error:
        raise DeadlineError("the deadline passed before the whole body was there; send it faster") from error
    try:
        value = (
            orjson.loads(body) if len(body) <= SMALL_BYTES else await asyncio.to_thread(orjson.loads, body)
        )
    except orjson.JSONDecodeError as error:
        detail = f"{error.msg} at character {error.pos}"
        raise MalformedJsonError(f"the body is not JSON: {detail}", [Fault("", detail)]) from error
    if not isinstance(value, dict):
        detail = f'expected an object such as {{"query": "…"}}, found {_json_type(value)}'
        raise RequestError(f"the body is not valid: {detail}", [Fault("", detail)])
    return value


def _check_declaration(request: Request) -> None:
    declared = request.headers.get("content-type", "")
    media_type, _, parameters = declared.partition(";")
    charset = parameters.partition("charset=")[2].split(";")[0].strip().strip('"').lower()
    if media_type.strip().lower() != "application/json" or charset not in _CHARSETS:
        raise MediaTypeError(
            f"found Content-Type {declared[:80] or 'none'!r}, expected 'application/json' in UTF-8; "
            "with curl: -H 'Content-Type: application/json'"
        )
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise MediaTypeError(f"found Content-Encoding {encoding[:80]!r}; send the body as it is")


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise _too_large(f"{declared[:20]} bytes", max_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large("more", max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(found: str, max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body may have {max_bytes} bytes, found {found}; send less")


def _json_type(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
