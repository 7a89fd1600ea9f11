"""`POST /search/batch`: several searches at once, each with an answer or a problem of its own."""

import asyncio
import logging
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.errors import GlowError
from glow.search import Index
from service.api.answers import count_late, find, head_of, note
from service.api.body import read_object
from service.api.checks import check_search, faults_of
from service.api.context import RequestContext, context_of, leaving_cancels
from service.api.documents import index_body
from service.api.problems import problem_body
from service.api.responses import json_answer
from service.api.schemas import BatchBody
from service.api.search import rounded
from service.errors import DeadlineError, Fault, RequestError
from service.state import Service, service_of

__all__ = ["post_batch"]

_logger = logging.getLogger(__name__)


async def post_batch(request: Request) -> Response:
    """Answers several searches, in the order in which they were given, from one index version."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    limits = service.settings
    value = await read_object(request, limits.batch_bytes, context.deadline, limits.max_items)
    body = _parse(value, limits.batch_limit)
    more = len(body.searches) - 1  # the request itself holds the first one's permit
    service.admission.enter(more)
    context.permits += more
    with leaving_cancels(context):
        found = await asyncio.gather(
            *(_one(service, context, index, search, place) for place, search in enumerate(body.searches))
        )
    results = b",".join(found)
    index_json = orjson.dumps(index_body(index))
    return json_answer(
        b"".join((b"{", head_of(context), b'"index":', index_json, b',"results":[', results, b"]}"))
    )


def _parse(value: dict[str, Any], most: int) -> BatchBody:
    try:
        body = BatchBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error) from error
    if not 1 <= len(body.searches) <= most:
        detail = f"expected 1 to {most} searches, found {len(body.searches)}; send several batches"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])
    return body


async def _one(
    service: Service, context: RequestContext, index: Index, value: dict[str, Any], place: int
) -> bytes:
    try:
        checked = check_search(value, service.settings, index)
        answer = await find(service, index, checked, context.started + checked.timeout_ms / 1_000)
    except Exception as error:  # one search's own, whatever it is: its mates must have their answers
        if not isinstance(error, GlowError):
            fields = {"request_id": context.request_id, "path": f"/searches/{place}"}
            _logger.error("unexpected error", exc_info=error, extra={"fields": fields})
            error = GlowError()
        if isinstance(error, DeadlineError):
            count_late(service, context)
        instance = f"/searches/{place}"
        problem = problem_body(error, request_id=context.request_id, instance=instance)
        return b"".join((b'{"status":%d,"problem":' % problem["status"], orjson.dumps(problem), b"}"))
    if "timeout" in answer.degraded:
        count_late(service, context)
    service.metrics.stages(answer.timings_ms)
    note(service, context, index, checked, answer)
    degraded, timings = orjson.dumps(answer.degraded), orjson.dumps(rounded(answer.timings_ms))
    parts = (b'{"status":200,"degraded":', degraded, b",", answer.page, b',"timings_ms":', timings, b"}")
    return b"".join(parts)
