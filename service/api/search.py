"""`POST /search`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from glow.index import Index
from glow.index.columns.filters import count_terms
from glow_service.access import confined
from glow_service.api.answers import LONG_FILTER, count_late, find, note
from glow_service.api.body import read_object
from glow_service.api.context import context_of, head_of, leaving_cancels
from glow_service.api.responses import json_answer
from glow_service.api.work_pools import Reading, enter_work_pool
from glow_service.search import CheckedSearch, Deadline, check_search
from glow_service.state import Service, service_of

__all__ = ["post_search"]


async def post_search(request: Request) -> Response:
    """Searches for documents."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    body = await read_object(
        request, service.settings.max_body_bytes, context.deadline, service.settings.max_items
    )
    with leaving_cancels(context):
        if context.tenant is not None:
            deadline = context.deadline
            body = await service.bulk.pool.run_by(
                deadline, confined, body, context.tenant, index, deadline.check
            )
        checked = await _check(service, index, body, context.deadline)
        context.deadline = Deadline.after(context.started, checked.timeout_ms)
        work_pool = enter_work_pool(service, context, request.scope, checked.cost, checked.work_pool)
        reading = Reading(service, context, request.scope, work_pool)
        answer = await find(reading, index, checked, context.deadline)
    context.timings_ms = answer.timings_ms
    service.metrics.stages(answer.timings_ms)
    note(service, context, index, checked, answer)
    if "timeout" in answer.degraded:
        count_late(service, context)
    before, after = answer.envelope()
    return json_answer(answer.result.enclose({**head_of(context, service.request_ids), **before}, after))


async def _check(service: Service, index: Index, body: dict[str, Any], deadline: Deadline) -> CheckedSearch:
    """Checks a search; one with a long filter is checked in the bulk pool, off the event loop."""
    if sum(count_terms(body[name]) for name in ("filter", "boosts") if name in body) <= LONG_FILTER:
        return check_search(body, service.limits, index)
    return await service.bulk.pool.run_by(deadline, check_search, body, service.limits, index)
