"""`POST /feedback`: logs clicks and relevance judgments, which `glow learn-clicks` reads."""

import hashlib
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import FeedbackResult
from glow.feedback import Feedback
from glow_service.access import client_of_scope
from glow_service.api.bodies import FeedbackBody
from glow_service.api.body import read_object
from glow_service.api.context import context_of
from glow_service.api.responses import json_response
from glow_service.errors import Fault, RateLimitError, RequestIdError, RouteNotFoundError
from glow_service.search import faults_of
from glow_service.state import Service, service_of

__all__ = ["post_feedback"]

MOST_BYTES = 4_096
MOST_ITEMS = 16


async def post_feedback(request: Request) -> Response:
    """Records a click on a hit, or a relevance judgment."""
    service = service_of(request)
    context = context_of(request.scope)
    if not service.feedback_log.is_on:
        raise RouteNotFoundError(
            "no such path; /openapi.json lists every one, and feedback_log turns this one on"
        )
    body = _parse(await read_object(request, MOST_BYTES, context.deadline, MOST_ITEMS))
    feedback = Feedback(
        request_id=_request_id(service, body.request_id),
        id=body.id,
        kind=body.kind,
        rank=body.rank,
        dwell_s=body.dwell_s,
    )
    # Only a client with a key may distinguish its users; without one, anybody could pretend to be many users.
    who = f"{context.key}\n{body.user}" if context.key and body.user else client_of_scope(request.scope)
    _limit(service, who)
    service.feedback_log.log(feedback, who)
    return json_response(FeedbackResult("noted"), 202)


def _request_id(service: Service, given: str) -> str:
    """The id of a search without its signature."""
    request_id = service.request_ids.read(given)
    if request_id is None:
        service.metrics.feedback_refused.labels(RequestIdError.code).inc()
        detail = f"found {given!r:.60}, not the id of a search of this service; send the whole request_id of a response"
        raise RequestIdError(f"/request_id: {detail}", [Fault("/request_id", detail)])
    return request_id


def _limit(service: Service, who: str) -> None:
    """Limits the feedback of each person, so that nobody can fill the log."""
    if service.clients.feedback is None:
        return
    # A hash, so that every entry of the limiter has the same size.
    wait_s = service.clients.feedback.take(hashlib.sha256(who.encode("utf-8", "replace")).hexdigest())
    if wait_s:
        for counter in (service.metrics.feedback_refused, service.metrics.rejected):
            counter.labels(RateLimitError.code).inc()
        most = service.settings.feedback_per_hour
        raise RateLimitError(
            f"found more than {most} clicks and judgments of one person in an hour "
            f"(feedback_per_hour); send the next one in {wait_s} s",
            wait_s,
        )


def _parse(value: dict[str, Any]) -> FeedbackBody:
    try:
        return FeedbackBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error
