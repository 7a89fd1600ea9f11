"""The routes `/search`, `/search/batch`, `/explain`, `/suggest` and `/feedback`."""

import asyncio
import hashlib
import logging
import threading
from dataclasses import replace
from typing import Any

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import (
    BatchItem,
    BatchResult,
    DocumentExplanation,
    ExplainResult,
    FeedbackResult,
    SearchResult,
    Suggestion,
    SuggestResult,
    encode,
)
from glow.errors import DocumentNotFoundError, Fault, FilterError, GlowError, QueryError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import count_terms
from glow.query_log import Feedback
from glow.search import suggest
from glow_service import errors
from glow_service.access import client_of_scope, require_visible
from glow_service.api.answers import count_late, find, note, plan_of
from glow_service.api.body import BatchRequest, FeedbackRequest, bounded, read_object
from glow_service.api.context import (
    RequestContext,
    context_of,
    head_of,
    json_answer,
    json_response,
    leaving_cancels,
    live_of,
)
from glow_service.api.problems import problem_body
from glow_service.api.routes import BODY_ERRORS, route
from glow_service.errors import AnswerTooLargeError, DeadlineError, RateLimitError, RequestIdError
from glow_service.search.clock import Deadline
from glow_service.search.plan import MAX_ANSWER_BYTES, MAX_EXPLAINED_HITS, SearchPlan
from glow_service.search.render import index_name
from glow_service.search.request import SearchRequest, Shape, fault, members_of_address, parameters_of, parsed
from glow_service.search.why import DocumentSearch
from glow_service.state import Service, service_of

_EXAMPLE = {"query": "how do bees find home", "top_k": 3, "fields": ["url", "title"], "highlight": True}
_logger = logging.getLogger(__name__)


_SEARCH_ERRORS = (
    DocumentNotFoundError,
    errors.AnswerTooLargeError,
    QueryError,
    FilterError,
    errors.QueryTooLongError,
    errors.NotAvailableError,
    errors.OverloadedError,
    errors.NotReadyError,
)


@route(
    "POST",
    "/search",
    errors=(*BODY_ERRORS, *_SEARCH_ERRORS),
    answer=SearchResult,
    body=SearchRequest,
    tag="search",
    example=_EXAMPLE,
)
async def post_search(request: Request, body: SearchRequest) -> Response:
    """Searches for documents."""
    service, context, index = live_of(request)
    with leaving_cancels(request):
        plan = await plan_of(service, context, index, body)
        context.deadline = Deadline.after(context.started, plan.timeout_ms)
        if plan.is_expensive:
            context.hold(service.pool.expensive)
        answer = await find(service, context, index, plan, context.deadline, is_expensive=plan.is_expensive)
    context.timings_ms = answer.timings_ms
    note(service, context, index, plan, answer)
    before, after = answer.envelope()
    return json_answer(answer.result.enclose({**head_of(context, service.request_ids), **before}, after))


@route(
    "GET",
    "/search",
    errors=(errors.RequestError, errors.DeadlineError, *_SEARCH_ERRORS),
    answer=SearchResult,
    tag="search",
    parameters=lambda: parameters_of(SearchRequest),
)
async def get_search(request: Request) -> Response:
    """Searches for documents, as `POST /search` does; lists have commas, and objects are JSON."""
    members = bounded(members_of_address(request.scope["query_string"]))
    response = await post_search(request, parsed(SearchRequest, members))
    response.headers["cache-control"] = "no-store"
    return response


class ExplainRequest(SearchRequest):
    """A search for a text, and the document to explain."""

    id: str = Field(min_length=1, max_length=1_024, description="The document's id.")


@route(
    "POST",
    "/explain",
    errors=(*BODY_ERRORS, *_SEARCH_ERRORS),
    answer=ExplainResult,
    body=ExplainRequest,
    tag="search",
    example={"id": "d42", "query": "how do bees find home"},
)
async def post_explain(request: Request, body: ExplainRequest) -> Response:
    """Says why a search returns a document, or does not."""
    service, context, index = live_of(request)
    gone, tenant = threading.Event(), context.tenant
    context.hold(service.pool.expensive)
    with leaving_cancels(request):
        plan = await plan_of(service, context, index, body)
        context.deadline = deadline = Deadline.after(context.started, plan.timeout_ms)

        def work() -> DocumentExplanation:
            require_visible(body.id, tenant, index, deadline.check)
            search = DocumentSearch(index, plan, body.id, body.filter, deadline)
            search.session.clock.gone = gone.is_set
            return search.run()

        try:
            explanation = await service.pool.run_expensive(deadline, work)
        finally:
            gone.set()
    return json_response({**head_of(context, service.request_ids), **msgspec.structs.asdict(explanation)})


# `POST /search/batch`: several searches at once, each with its own result or problem.

AT_ONCE = 8
"""Most concurrent searches of a batch: each starts on the event loop, which must also serve others."""
MAX_BATCH_FILTER_TERMS = 4_000
"""Most conditions, groups and values of all filters of a batch."""
MAX_BATCH_EXPLAINED_HITS = 64
"""Most hits that all searches of a batch explain."""


@route(
    "POST",
    "/search/batch",
    errors=(*BODY_ERRORS, errors.OverloadedError, errors.NotReadyError),
    answer=BatchResult,
    body=BatchRequest,
    tag="search",
    example={"searches": [_EXAMPLE, {"query": "why do salmon swim upriver"}]},
    most_bytes=lambda settings: settings.batch_bytes,
)
async def post_batch(request: Request, body: BatchRequest) -> Response:
    """Runs several searches on one index version."""
    service, context, index = live_of(request)
    most, count = service.settings.max_batch_queries, len(body.searches)
    if not 1 <= count <= most:
        raise fault("/searches", f"expected 1 to {most} searches, found {count}; send several batches")
    context.hold(service.pool.expensive)
    service.access.charge(request.scope, context.key, count)
    with leaving_cancels(request):
        await asyncio.to_thread(_check_totals, body.searches)
        batch, turns = _Batch(service, context, index, count), asyncio.Semaphore(AT_ONCE)

        async def one(place: int, search: dict[str, Any]) -> bytes:
            async with turns:
                return await batch.answer(place, search)

        results = await asyncio.gather(*(one(place, search) for place, search in enumerate(body.searches)))
    members = {"index": index_name(index), "results": [msgspec.Raw(result) for result in results]}
    return json_response({**head_of(context, service.request_ids), **members})


def _check_totals(searches: list[dict[str, Any]]) -> None:
    """Limits what all searches of a batch may ask together."""
    terms = sum(
        count_terms(search[name]) for search in searches for name in ("filter", "boosts") if name in search
    )
    if terms > MAX_BATCH_FILTER_TERMS:
        detail = f"the filters have {terms} terms in total, expected at most {MAX_BATCH_FILTER_TERMS}; send several batches"
        raise fault("/searches", detail)
    hits = [search.get("top_k", 10) for search in searches if search.get("explain")]
    # A search that explains too many hits is refused by itself.
    explained = sum(each for each in hits if isinstance(each, int) and 0 < each <= MAX_EXPLAINED_HITS)
    if explained > MAX_BATCH_EXPLAINED_HITS:
        detail = (
            f"the searches explain up to {explained} hits in total, expected at most {MAX_BATCH_EXPLAINED_HITS}; "
            "request fewer"
        )
        raise fault("/searches", detail)


class _Batch:
    """Answers the searches of a batch. All results together have at most `MAX_ANSWER_BYTES`."""

    def __init__(self, service: Service, context: RequestContext, index: Index, searches: int) -> None:
        self._service, self._context, self._index = service, context, index
        self._share = max(MAX_ANSWER_BYTES // searches, 1)  # of a search whose hits may be cut
        self._left = MAX_ANSWER_BYTES

    async def answer(self, place: int, search: dict[str, Any]) -> bytes:
        """The result of one search, or its problem: an error of one search does not affect the others."""
        context, instance = self._context, f"/searches/{place}"
        try:
            return await self._result(search)
        except Exception as error:
            if not isinstance(error, GlowError):
                fields = {"request_id": context.request_id, "path": instance}
                _logger.error("unexpected error", exc_info=error, extra={"fields": fields})
            if isinstance(error, DeadlineError):
                count_late(self._service, context)
            known = error if isinstance(error, GlowError) else GlowError()
            problem = problem_body(known, request_id=context.request_id, instance=instance)
            return encode(BatchItem(problem.status, problem=problem))

    async def _result(self, search: dict[str, Any]) -> bytes:
        service, context, index = self._service, self._context, self._index
        plan = await plan_of(service, context, index, parsed(SearchRequest, search))
        if plan.may_cut:
            plan = replace(plan, max_bytes=self._share)
        deadline = Deadline.after(context.started, plan.timeout_ms)
        answer = await find(service, context, index, plan, deadline, is_expensive=True)
        before, after = answer.envelope()
        result = self._take(answer.result.enclose({"status": 200, **before}, after), plan)
        note(service, context, index, plan, answer)
        return result

    def _take(self, result: bytes, plan: SearchPlan) -> bytes:
        """Accepts a result, or raises if the earlier ones left too few bytes; one that may be cut has its share."""
        if not plan.may_cut and len(result) > self._left:
            raise AnswerTooLargeError(
                f"the results of the batch exceed {MAX_ANSWER_BYTES} bytes; send fewer searches at once, "
                "request fewer hits or fields, or remove allow_truncated"
            )
        self._left = max(self._left - len(result), 0)
        return result


# `GET /suggest`: what a query may become, while it is typed.


class SuggestRequest(Shape):
    """The parameters of `GET /suggest`."""

    query: str = Field(description="The text so far.")
    top_k: int = Field(8, ge=1, le=20, description="Most suggestions.")


@route(
    "GET",
    "/suggest",
    errors=(
        errors.RequestError,
        QueryError,
        errors.QueryTooLongError,
        errors.NotAvailableError,
        errors.DeadlineError,
        errors.OverloadedError,
        errors.NotReadyError,
    ),
    answer=SuggestResult,
    tag="search",
    parameters=lambda: parameters_of(SuggestRequest),
)
async def get_suggestions(request: Request) -> Response:
    """Suggests titles and phrases for the beginning of a query; its last word may be incomplete."""
    service, context, index = live_of(request)
    start = parsed(SuggestRequest, members_of_address(request.scope["query_string"]))
    with leaving_cancels(request):
        # As a search: the same bounds of a query, and the filter of the key.
        search = parsed(SearchRequest, {"query": start.query, "retriever": "lexical"})
        plan = await plan_of(service, context, index, search)
        check = context.deadline.check

        def work() -> list[Suggestion]:
            allowed = None if plan.filter is None else index[COLUMNS].masks.mask(plan.filter, check)
            suggestions = suggest(index, plan.text, start.top_k, allowed, check)
            return [Suggestion(each.text, each.kind, each.id) for each in suggestions]

        members = {"index": index_name(index), "suggestions": await service.pool.run(context.deadline, work)}
    response = json_response({**head_of(context, service.request_ids), **members})
    response.headers["cache-control"] = "no-store"
    return response


# `POST /feedback`: logs clicks and relevance judgments, which `glow learn-clicks` reads.

MAX_FEEDBACK_BYTES = 4_096


@route(
    "POST",
    "/feedback",
    errors=(*BODY_ERRORS, errors.RequestIdError, errors.RouteNotFoundError),
    answer=FeedbackResult,
    body=FeedbackRequest,
    tag="search",
    example={"request_id": "7cd5284e524b6bde", "id": "d42", "kind": "click", "rank": 1},
)
async def post_feedback(request: Request) -> Response:
    """Records a click on a hit, or a relevance judgment."""
    service = service_of(request)
    context = context_of(request.scope)
    if not service.feedback_log.is_on:
        raise errors.RouteNotFoundError(
            "no such path; /openapi.json lists every one, and feedback_log turns this one on"
        )
    body = parsed(FeedbackRequest, await read_object(request, MAX_FEEDBACK_BYTES, context.deadline))
    members = body.model_dump(include={"id", "kind", "rank", "dwell_s"})
    feedback = Feedback(request_id=_request_id(service, body.request_id), **members)
    # Only a client with a key may distinguish its users; without one, anybody could pretend to be many users.
    who = f"{context.key}\n{body.user}" if context.key and body.user else client_of_scope(request.scope)
    _limit(service, who)
    service.feedback_log.log(feedback, who)
    return json_response(FeedbackResult("noted"), 202)


def _request_id(service: Service, signed: str) -> str:
    """The id of a search without its signature."""
    request_id = service.request_ids.read(signed)
    if request_id is None:
        service.metrics.feedback_refused.labels(RequestIdError.code).inc()
        detail = f"found {signed!r:.60}, not the id of a search of this service; send the whole request_id of a response"
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
