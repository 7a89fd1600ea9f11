"""Bodies of requests: their shapes, and how they are read."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect, Request

from glow.errors import Fault
from glow_service.api.context import context_of
from glow_service.errors import BodyTooLargeError, DeadlineError, MalformedJsonError, MediaTypeError
from glow_service.search.clock import NEVER, Deadline
from glow_service.search.request import Shape, fault
from glow_service.settings import Settings
from glow_service.state import service_of

MOST_TEXTS = 1_024
"""Largest value of `max_batch_queries`."""


class BatchRequest(Shape):
    """Several searches."""

    searches: list[dict[str, Any]] = Field(
        max_length=MOST_TEXTS, description="1 to `max_batch_queries` bodies of `POST /search`."
    )


class EmbeddingsRequest(Shape):
    """Texts to encode."""

    input: str | Annotated[list[str], Field(max_length=MOST_TEXTS)] = Field(
        description="A text, or 1 to `max_batch_queries` of them."
    )
    model: str | None = Field(
        None, description="The index's model, perhaps with encoder: `glow-mini:document`."
    )
    input_type: Literal["query", "document"] | None = Field(
        None, description="Encoder, if `model` does not name it; `document` needs `document_model`."
    )
    encoding_format: Literal["float", "base64"] = Field("float", description="Numbers, or base64 of float32.")
    dimensions: int | None = Field(None, description="The model's dimensions; other values are refused.")
    user: str | None = Field(None, description="Ignored.")


class FeedbackRequest(Shape):
    """A hit of a search, and what the user did with it."""

    request_id: str = Field(min_length=1, max_length=160, description="`request_id` of the response.")
    id: str = Field(min_length=1, max_length=512, description="The document's id.")
    kind: Literal["click", "like", "dislike"] = Field(description="What the user did.")
    rank: int | None = Field(None, ge=1, le=100_000, description="Rank of the hit.")
    dwell_s: float | None = Field(
        None, ge=0, le=86_400, description="Seconds on the document; send the click again with it."
    )
    user: str | None = Field(
        None, min_length=1, max_length=256, description="A user of the API key; stored as a keyed hash."
    )


class DocumentsRequest(Shape):
    """Documents to add or replace. The body can also be a single document, or JSON Lines."""

    documents: list[dict[str, Any]] = Field(description="1 to 1,000 documents, each with `_id` and text.")


class ListRequest(Shape):
    """The parameters of `GET /documents`."""

    model_config = ConfigDict(strict=False)

    after: str = Field("", description="Lists the documents after this id.")
    limit: int = Field(100, ge=1, le=1_000, description="Most documents; a page of 8 MiB ends earlier.")
    filter: dict[str, Any] | None = Field(None, description="Restricts the documents, as for a search.")


class PatchRequest(BaseModel):
    """A JSON merge patch (RFC 7396) of a document's metadata: null removes a key."""

    model_config = ConfigDict(extra="allow")


class DeleteRequest(Shape):
    """Documents to delete: `ids`, `filter` or `all`. Only `filter` and `all` can be combined."""

    ids: list[str] | None = Field(None, description="1 to 1,000 ids; unknown ids are not an error.")
    filter: dict[str, Any] | None = Field(
        None, description="As for a search. Without `all`, it must restrict something."
    )
    all: bool = Field(False, description="Allows deleting every document.")


class ReloadRequest(Shape):
    """No fields; the body is optional."""


class RollbackRequest(Shape):
    """A version to make live; the body is optional."""

    version: str | None = Field(None, max_length=128, description="Default: the previous version.")


# Reads JSON bodies: checks the Content-Type, the size while it streams in, and the syntax.

SMALL_BYTES = 64 << 10
"""A body of this size parses in less than a millisecond; larger ones are parsed in a thread."""
GRACE_S, LEAST_BYTES_S = 10.0, 64 << 10
"""Time limit of a body: a constant, plus one second per so many bytes."""
_CHARSETS = ("", "utf-8", "utf8")


MAX_MEMBERS = 100
"""Most members of an object in any request; checking more would cost time."""
MAX_ITEMS = 2_000
"""Longest list; a slightly too long list still reaches its own check, which has a better message."""


class BoundedRequest(Request):
    """A request whose body FastAPI reads: of limited size, time and depth, and as JSON of a known type."""

    def __init__(self, request: Request, most_bytes: Callable[[Settings], int], *, needs_body: bool) -> None:
        super().__init__(request.scope, request.receive)
        self._most_bytes, self._needs_body = most_bytes, needs_body
        self._value: Any = None

    async def body(self) -> bytes:
        """The bytes of the body; empty only if the route needs none."""
        length = self.headers.get("content-length", "0")
        if not self._needs_body and length == "0" and "transfer-encoding" not in self.headers:
            return b""
        service = service_of(self)
        deadline = context_of(self.scope).deadline
        self._value = await read_object(self, self._most_bytes(service.settings), deadline)
        return b"{}"  # FastAPI only asks whether there is one

    async def json(self) -> Any:
        """The parsed body."""
        return self._value


async def read_bytes(request: Request, max_bytes: int, deadline: Deadline = NEVER) -> bytes:
    """Reads a body of any Content-Type; a slow sender is refused, because the request holds a slot meanwhile."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise MediaTypeError("found a Content-Encoding; send the body uncompressed")
    too_large = BodyTooLargeError(f"the body may have {max_bytes} bytes; send less")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    began = asyncio.get_running_loop().time()
    left_s = deadline.left_s()
    last = inf if left_s is None else began + left_s
    try:
        async with asyncio.timeout_at(min(last, began + GRACE_S)) as limit:
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > max_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(chunks)
                limit.reschedule(min(last, began + GRACE_S + size / LEAST_BYTES_S))
    except TimeoutError as error:
        raise DeadlineError("the deadline passed before the body was complete; send it faster") from error


async def read_json(
    request: Request,
    max_bytes: int,
    deadline: Deadline = NEVER,
    *others: str,  # other media types
) -> bytes:
    """Reads a JSON body without parsing it."""
    declared = request.headers.get("content-type", "")
    media_type, _, parameters = declared.partition(";")
    charset = parameters.partition("charset=")[2].split(";")[0].strip().strip('"').lower()
    if media_type.strip().lower() not in ("application/json", *others) or charset not in _CHARSETS:
        raise MediaTypeError(
            f"found Content-Type {declared[:80] or 'none'!r}, expected 'application/json' in UTF-8; "
            "with curl: -H 'Content-Type: application/json'"
        )
    return await read_bytes(request, max_bytes, deadline)


async def read_object(request: Request, max_bytes: int, deadline: Deadline = NEVER) -> dict[str, Any]:
    """Reads the body as a JSON object of at most `max_bytes`, without very large objects and lists in it."""
    body = await read_json(request, max_bytes, deadline)
    try:
        value = _parse(body) if len(body) <= SMALL_BYTES else await asyncio.to_thread(_parse, body)
    except orjson.JSONDecodeError as error:
        detail = f"{error.msg} at character {error.pos}"
        raise MalformedJsonError(f"the body is not JSON: {detail}", [Fault("", detail)]) from error
    if not isinstance(value, dict):
        raise fault("", 'expected an object such as {"query": "…"}')
    return value


def _parse(body: bytes) -> Any:
    return bounded(orjson.loads(body))


def bounded(value: Any) -> Any:
    """A JSON value; raises if an object or list in it is too large."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is dict or type(item) is list:
            if len(item) > (MAX_MEMBERS if type(item) is dict else MAX_ITEMS):
                raise fault(
                    "",
                    f"expected at most {MAX_MEMBERS} members of an object, and {MAX_ITEMS} items of a list",
                )
            inner = item.values() if type(item) is dict else item
            waiting += [each for each in inner if type(each) is dict or type(each) is list]
    return value
