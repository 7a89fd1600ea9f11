"""`POST /search`."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from service.api.answers import Answer, count_late, find, head_of, note
from service.api.body import read_object
from service.api.checks import check_search
from service.api.context import RequestContext, context_of, leaving_cancels
from service.api.responses import json_answer
from service.state import service_of

__all__ = ["post_search", "rounded"]


async def post_search(request: Request) -> Response:
    """Finds the documents that answer a query."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    body = await read_object(
        request, service.settings.max_body_bytes, context.deadline, service.settings.max_items
    )
    checked = check_search(body, service.settings, index)
    context.deadline = context.started + checked.timeout_ms / 1_000
    with leaving_cancels(context):
        answer = await find(service, index, checked, context.deadline)
    context.timings_ms = answer.timings_ms
    service.metrics.stages(answer.timings_ms)
    note(service, context, index, checked, answer)
    if "timeout" in answer.degraded:
        count_late(service, context)
    if not answer.degraded:
        service.shadow.offer(context.request_id, body, answer.page)
    return json_answer(_result(context, answer))


def _result(context: RequestContext, answer: Answer) -> bytes:
    degraded, timings = orjson.dumps(answer.degraded), orjson.dumps(rounded(answer.timings_ms))
    parts = (b"{", head_of(context), b'"degraded":', degraded, b",", answer.page, b',"timings_ms":', timings)
    return b"".join((*parts, b"}"))


def rounded(timings_ms: dict[str, float]) -> dict[str, float]:
    """Stages as an answer shows them, to the microsecond."""
    return {stage: round(value, 3) for stage, value in timings_ms.items()}
