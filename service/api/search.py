"""The routes `/search`, `/search/batch` and `/feedback`."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import BatchItem, FeedbackResult
from glow.errors import Fault, GlowError
from glow.feedback import Feedback
from glow.index import Index
from glow.index.columns.filters import count_terms
from glow_service.access import Tenant, client_of_scope, confined
from glow_service.api.answers import LONG_FILTER, Reading, count_late, enter_work_pool, find, note
from glow_service.api.body import BatchBody, FeedbackBody, read_object
from glow_service.api.context import (
    RequestContext,
    context_of,
    head_of,
    json_answer,
    json_bytes,
    json_response,
    leaving_cancels,
)
from glow_service.api.problems import problem_body
from glow_service.errors import (
    AnswerTooLargeError,
    DeadlineError,
    RateLimitError,
    RequestError,
    RequestIdError,
    RouteNotFoundError,
)
from glow_service.search import CheckedSearch, Deadline, check_search, faults_of, index_name
from glow_service.settings import Settings
from glow_service.state import Service, service_of

LONGEST_STRETCH_S = 0.002
"""Longest time of checks without giving the event loop a turn."""


class AnswerRoom:
    """The remaining bytes for the results of a batch.

    Results whose hits may be cut are already limited to their part, so they always pass.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, answer: bytes, *, may_cut: bool) -> bytes:
        """Accepts a result, or raises if the earlier results left too few bytes."""
        if not may_cut and len(answer) > self._left:
            raise AnswerTooLargeError(
                f"the results of the batch exceed {self._most} bytes (max_answer_bytes); send fewer searches at once, "
                "request fewer hits or fields, or remove allow_truncated"
            )
        self._left = max(self._left - len(answer), 0)
        return answer


async def check_searches(
    service: Service, context: RequestContext, index: Index, searches: Sequence[dict[str, Any]]
) -> list[CheckedSearch | Exception]:
    """Checks every search of a batch; each becomes a checked search or its error."""
    pool, deadline, tenant = service.bulk.pool, context.deadline, context.tenant
    confine = partial(_confined, tenant, index, deadline)
    if tenant is not None:
        kept = await pool.run_by(deadline, lambda: [confine(search) for search in searches])
    else:
        kept = list(searches)
    searches = [each if isinstance(each, dict) else {} for each in kept]
    terms = await pool.run_by(deadline, _count, searches)
    _check_terms(sum(terms), service.settings)
    checked: list[CheckedSearch | Exception] = []
    paused = time.perf_counter()
    for search, count, fault in zip(searches, terms, kept, strict=True):
        if isinstance(fault, Exception):
            checked.append(fault)
        elif count > LONG_FILTER:
            checked.append(await pool.run_by(deadline, _check_one, service, index, search))
        else:
            checked.append(_check_one(service, index, search))
        if time.perf_counter() - paused > LONGEST_STRETCH_S:
            await asyncio.sleep(0)
            deadline.check()
            paused = time.perf_counter()
    _check_explained(checked, service.settings)
    return [_with_share(each, len(searches)) for each in checked]


def _confined(
    tenant: Tenant | None, index: Index, deadline: Deadline, search: dict[str, Any]
) -> dict[str, Any] | GlowError:
    try:
        return confined(search, tenant, index, deadline.check)
    except DeadlineError:
        raise
    except GlowError as error:
        return error


def _count(searches: Sequence[dict[str, Any]]) -> list[int]:
    return [
        sum(count_terms(search[name]) for name in ("filter", "boosts") if name in search)
        for search in searches
    ]


def _check_one(service: Service, index: Index, search: dict[str, Any]) -> CheckedSearch | Exception:
    try:
        return check_search(search, service.limits, index)
    except GlowError as error:
        return error


def _check_terms(terms: int, settings: Settings) -> None:
    most = settings.max_batch_filter_terms
    if terms > most:
        detail = f"the filters have {terms} terms in total, expected at most {most}; send several batches"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])


def _check_explained(checked: Sequence[CheckedSearch | Exception], settings: Settings) -> None:
    calls = [each.call for each in checked if isinstance(each, CheckedSearch)]
    hits = sum(call.top_k for call in calls if call.explain is not None)
    most = settings.max_batch_explained_hits
    if hits > most:
        detail = f"the searches explain up to {hits} hits in total, expected at most {most}; request fewer"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])


def _with_share(search: CheckedSearch | Exception, searches: int) -> CheckedSearch | Exception:
    """Limits a search whose hits may be cut to an equal part of the response."""
    if isinstance(search, Exception) or not search.call.may_cut:
        return search
    return replace(search, call=replace(search.call, max_bytes=max(search.call.max_bytes // searches, 1)))


# `POST /search`.


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


# `POST /search/batch`: several searches at once, each with its own result or problem.

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


# `POST /feedback`: logs clicks and relevance judgments, which `glow learn-clicks` reads.

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
    body = _parse_feedback(await read_object(request, MOST_BYTES, context.deadline, MOST_ITEMS))
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
    # A hash, so that every entry of the limiter has the same size.
    wait_s = service.clients.feedback.take(hashlib.sha256(who.encode("utf-8", "replace")).hexdigest())
    if wait_s:
        for counter in (service.metrics.feedback_refused, service.metrics.rejected):
            counter.labels(RateLimitError.code).inc()
        raise RateLimitError(
            f"too many clicks and judgments of one person; send the next one in {wait_s} s", wait_s
        )


def _parse_feedback(value: dict[str, Any]) -> FeedbackBody:
    try:
        return FeedbackBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error
