"""`POST /search/batch`: several searches at once, each with its own result or problem."""

import asyncio
import logging
from typing import Any

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import BatchItem
from glow.errors import GlowError
from glow.index import Index
from glow_service.api.answers import count_late, find, note
from glow_service.api.batch_checks import AnswerRoom, check_searches
from glow_service.api.bodies import BatchBody
from glow_service.api.body import read_object
from glow_service.api.context import context_of, head_of, leaving_cancels
from glow_service.api.problems import problem_body
from glow_service.api.responses import json_bytes, json_response
from glow_service.api.work_pools import Reading, enter_work_pool
from glow_service.errors import DeadlineError, Fault, RequestError
from glow_service.search import CheckedSearch, Deadline, faults_of, index_name
from glow_service.state import Service, service_of

__all__ = ["post_batch"]

AT_ONCE = 8
"""Most concurrent searches of a batch: each starts on the event loop, which must also serve others."""
_logger = logging.getLogger(__name__)


async def post_batch(request: Request) -> Response:
    """Runs several searches on one index version."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    limits = service.settings
    value = await read_object(request, limits.batch_bytes, context.deadline, limits.max_items)
    body = _parse(value, limits.batch_limit)
    with leaving_cancels(context):
        checked = await check_searches(service, context, index, body.searches)
        cost = sum(each.cost if isinstance(each, CheckedSearch) else 1 for each in checked)
        work_pool = enter_work_pool(service, context, request.scope, cost, "bulk")
        reading = Reading(service, context, request.scope, work_pool)
        room, turns = AnswerRoom(limits.max_answer_bytes), asyncio.Semaphore(AT_ONCE)

        async def one(place: int, search: CheckedSearch | Exception) -> bytes:
            async with turns:
                return await _one(service, reading, index, search, room, place)

        results = await asyncio.gather(*(one(place, search) for place, search in enumerate(checked)))
    head, found = head_of(context, service.request_ids), [msgspec.Raw(result) for result in results]
    return json_response({**head, "index": index_name(index), "results": found})


def _parse(value: dict[str, Any], most: int) -> BatchBody:
    try:
        body = BatchBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error
    if not 1 <= len(body.searches) <= most:
        detail = f"expected 1 to {most} searches, found {len(body.searches)}; send several batches"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])
    return body


async def _one(
    service: Service,
    reading: Reading,
    index: Index,
    search: CheckedSearch | Exception,
    room: AnswerRoom,
    place: int,
) -> bytes:
    context = reading.context
    try:
        if isinstance(search, Exception):
            raise search
        deadline = Deadline.after(context.started, search.timeout_ms)
        answer = await find(reading, index, search, deadline)
        before, after = answer.envelope()
        body = answer.result.enclose({"status": 200, **before}, after)
        result = room.take(body, may_cut=search.call.may_cut)
    except Exception as error:  # any error of one search must not affect the others
        if not isinstance(error, GlowError):
            fields = {"request_id": context.request_id, "path": f"/searches/{place}"}
            _logger.error("unexpected error", exc_info=error, extra={"fields": fields})
            error = GlowError()
        if isinstance(error, DeadlineError):
            count_late(service, context)
        instance = f"/searches/{place}"
        problem = problem_body(error, request_id=context.request_id, instance=instance)
        return json_bytes(BatchItem(problem.status, problem=problem))
    if "timeout" in answer.degraded:
        count_late(service, context)
    service.metrics.stages(answer.timings_ms)
    note(service, context, index, search, answer)
    return result
