"""`POST /search`."""

from starlette.requests import Request
from starlette.responses import Response

from glow_service.api.answers import count_late, find, note
from glow_service.api.body import read_object
from glow_service.api.context import context_of, head_of, leaving_cancels
from glow_service.api.responses import json_answer
from glow_service.search import Deadline, check_search
from glow_service.state import service_of

__all__ = ["post_search"]


async def post_search(request: Request) -> Response:
    """Finds the documents that answer a query."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    body = await read_object(
        request, service.settings.max_body_bytes, context.deadline, service.settings.max_items
    )
    checked = check_search(body, service.limits, index)
    context.deadline = Deadline.after(context.started, checked.timeout_ms)
    with leaving_cancels(context):
        answer = await find(service, index, checked, context.deadline)
    context.timings_ms = answer.timings_ms
    service.metrics.stages(answer.timings_ms)
    note(service, context, index, checked, answer)
    if "timeout" in answer.degraded:
        count_late(service, context)
    if not answer.degraded:
        service.shadow.offer(context.request_id, body, answer.result)
    before, after = answer.envelope()
    return json_answer(answer.result.enclose({**head_of(context), **before}, after))
