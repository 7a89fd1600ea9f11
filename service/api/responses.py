"""JSON answers."""

from typing import Any

import orjson
from starlette.responses import Response

__all__ = ["json_answer", "json_bytes", "json_response"]


def json_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; the builder keeps out what orjson cannot write."""
    return orjson.dumps(value)


def json_answer(body: bytes) -> Response:
    """An `application/json` answer whose bytes are made already."""
    return Response(body, media_type="application/json")


def json_response(value: Any, status: int = 200) -> Response:
    """An `application/json` answer."""
    return Response(json_bytes(value), status, media_type="application/json")
