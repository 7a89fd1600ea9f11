"""JSON responses."""

from typing import Any

from starlette.responses import Response

from glow.contract import encode

__all__ = ["json_answer", "json_bytes", "json_response"]


def json_bytes(value: Any) -> bytes:
    """Encodes a value as JSON in UTF-8: a record of `glow.contract`, or plain values."""
    return encode(value)


def json_answer(body: bytes) -> Response:
    """An `application/json` response of encoded bytes."""
    return Response(body, media_type="application/json")


def json_response(value: Any, status: int = 200) -> Response:
    """An `application/json` response."""
    return Response(json_bytes(value), status, media_type="application/json")
