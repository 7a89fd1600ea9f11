"""`POST /shard/…`: what routers ask of a shard, behind their own key and off without one; no part of the public interface."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from glow.options import StrictModel
from glow_service.api.body import read_object
from glow_service.api.context import context_of, leaving_cancels
from glow_service.api.responses import json_response
from glow_service.search import Deadline
from glow_service.shards import (
    DocumentCall,
    OpenCall,
    RankCall,
    ShowCall,
    answer_document,
    answer_rank,
    answer_show,
    read_call,
)
from glow_service.state import service_of

__all__ = ["post_shard_document", "post_shard_open", "post_shard_rank", "post_shard_show"]

MAX_BODY_BYTES = 8 << 20
MAX_ITEMS = 100_000


async def post_shard_open(request: Request) -> Response:
    """Has a version ready that a set names."""
    service = service_of(request)
    call = read_call(OpenCall, await read_object(request, MAX_BODY_BYTES))
    index = await asyncio.to_thread(service.shard_versions.open, call.version, call.manifest)
    return json_response({"documents": index.documents.count, "has_vectors": index.dense.has_vectors})


async def post_shard_rank(request: Request) -> Response:
    """The candidates of a query."""
    return await _answer(request, RankCall, answer_rank)


async def post_shard_show(request: Request) -> Response:
    """Hits as they are shown."""
    return await _answer(request, ShowCall, answer_show)


async def post_shard_document(request: Request) -> Response:
    """A document by its id."""
    return await _answer(request, DocumentCall, answer_document)


async def _answer(request: Request, kind: type[StrictModel], answer: Callable[..., bytes]) -> Response:
    service, context = service_of(request), context_of(request.scope)
    value: dict[str, Any] = await read_object(request, MAX_BODY_BYTES, context.deadline, MAX_ITEMS)
    call: Any = read_call(kind, value)
    context.deadline = Deadline.after(context.started, call.timeout_ms)
    index = service.shard_versions.get(call.version)
    context.index_version = index.version
    with leaving_cancels(context):
        deadline = context.deadline
        body = await service.plain.pool.run_by(deadline, answer, index, call, deadline.check)
    return Response(body, media_type="application/json")
