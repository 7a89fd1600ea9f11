"""Answers to searches, through the caches and the search threads; shared by single searches and batches."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import GlowError, StoreError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.query_log import LoggedQuery
from glow.search import Retriever
from glow_service.access import Tenant, require_visible
from glow_service.api.context import RequestContext
from glow_service.errors import DeadlineError
from glow_service.fragment import ResultFragment
from glow_service.search.clock import Deadline, StageClock
from glow_service.search.hits import LongHitsError
from glow_service.search.plan import SearchPlan, filter_terms_of, plan_search
from glow_service.search.pool import Job
from glow_service.search.request import SearchRequest
from glow_service.search.run import SearchAnswer, SearchSession
from glow_service.state import Service

Vector = NDArray[np.float32]
_logger = logging.getLogger(__name__)
LONG_FILTER = 50
"""Filters with more terms are checked and hashed to a cache key outside the event loop."""
SHORT_CHARS = 200
"""Shorter queries are preprocessed on the event loop, which is faster than starting a thread."""


async def plan_of(
    service: Service, context: RequestContext, index: Index, request: SearchRequest
) -> SearchPlan:
    """Checks a request; what takes longer than microseconds is checked in a thread."""
    if context.tenant is None and filter_terms_of(request) <= LONG_FILTER:
        return plan_search(request, service.settings, index, service.resources.synonyms)

    def check() -> SearchPlan:
        restricted = _confined(request, context.tenant, index, context.deadline)
        return plan_search(restricted, service.settings, index, service.resources.synonyms)

    return await service.pool.run(context.deadline, check)


def _confined(
    request: SearchRequest, tenant: Tenant | None, index: Index, deadline: Deadline
) -> SearchRequest:
    """Adds the filter of a key to a request.

    No typo is corrected and no prefix completed: the words could come from documents that the key may not read.
    """
    if tenant is None or tenant.filter is None:
        return request
    if request.like is not None:
        require_visible(request.like.id, tenant, index, deadline.check)
    both = {"and": [tenant.filter, request.filter]}
    restricted = tenant.filter if request.filter is None else both
    return request.model_copy(update={"filter": restricted, "typos": "off", "prefix": False})


@dataclass(slots=True)
class Answer:
    """The response to a search."""

    result: ResultFragment  # members that depend only on index and request
    degraded: tuple[str, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)  # stage -> milliseconds

    def envelope(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Members before and after the result; times are rounded to microseconds."""
        timings = {stage: round(value, 3) for stage, value in self.timings_ms.items()}
        return {"degraded": self.degraded}, {"timings_ms": timings}


async def find(
    service: Service,
    context: RequestContext,
    index: Index,
    plan: SearchPlan,
    deadline: Deadline,
    *,
    is_expensive: bool,  # whether the request has a slot for expensive work, and runs there
) -> Answer:
    """Answers a search from the cache or the index.

    If a store fails, a hybrid search that allows partial results becomes lexical or dense; others raise.
    """
    clock = StageClock()
    making = _Making(service, context, index, plan, deadline, is_expensive)
    try:
        result = await making.cached()
    except _UnfinishedError as unfinished:
        return unfinished.answer
    except StoreError as error:
        service.metrics.dense_unavailable.inc()
        if not plan.allow_partial or plan.retriever != "hybrid":
            raise
        _logger.warning("one retriever only", extra={"fields": {"error": str(error)}})
        words: Retriever = "learned-sparse" if index.holds(LEARNED_SPARSE) else "lexical"
        try:
            return await making.by(words, missing="dense")
        except StoreError:  # the words are in a store, too; perhaps only they are missing
            return await making.by("dense", missing="lexical")
    except DeadlineError as error:
        if not plan.allow_partial:
            raise DeadlineError(
                f"the deadline of {plan.timeout_ms} ms passed before the response was ready; "
                "allow more time (timeout_ms), or partial results (allow_partial)"
            ) from error
        session = making.session or SearchSession(index, plan)
        answer = await asyncio.to_thread(session.unfinished)
        return Answer(ResultFragment.of(answer.found), ("timeout",), dict(answer.timings_ms))
    if not making.timings_ms:  # from the cache, or from a concurrent request for the same search
        clock.lap("cache")
        return Answer(result, (), clock.timings_ms)
    return Answer(result, (), making.timings_ms)


@dataclass(slots=True)
class _Making:
    """Makes one response."""

    _service: Service
    _context: RequestContext
    _index: Index
    _plan: SearchPlan
    _deadline: Deadline
    _is_expensive: bool
    session: SearchSession | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)

    async def cached(self) -> ResultFragment:
        """The result from the cache, or from a search; concurrent requests for the same search share one."""
        cache, plan = self._service.cache, self._plan
        if not cache.enabled:
            return ResultFragment(await self._make())
        try:
            async with asyncio.timeout(self._deadline.left_s()):
                key_of, is_long = cache.keys(self._index).page, plan.filter_terms > LONG_FILTER
                key = await self._service.pool.run(self._deadline, key_of, plan) if is_long else key_of(plan)
                members = await cache.response(key, self._make)
        except TimeoutError as error:
            raise self._deadline.error() from error
        return ResultFragment(members)

    async def by(self, retriever: Retriever, missing: str) -> Answer:
        """The result of one retriever, for a store that does not respond; it is not cached."""
        plan = replace(self._plan, retriever=retriever, rerank=None, fusion=None)
        session = SearchSession(self._index, plan, self._deadline)
        answer, result = await self._in_thread(session, session.run, is_expensive=self._is_expensive)
        return Answer(result, (missing,), dict(answer.timings_ms))

    async def _make(self) -> bytes:
        """Searches; an incomplete result is raised as `_UnfinishedError`, so that it is not cached."""
        service, pool = self._service, self._service.pool
        self.session = session = SearchSession(self._index, self._plan, self._deadline)
        if self._is_expensive:
            answer, result = await self._in_thread(session, session.run, is_expensive=True)
        else:
            session.may_move = True
            try:
                answer, result = await self._search(session)
            except LongHitsError:
                self._context.hold(pool.expensive)
                answer, result = await self._in_thread(session, session.go_on, is_expensive=True)
        self.timings_ms = dict(answer.timings_ms)
        if answer.found.query.truncated:
            service.metrics.truncated.labels("query").inc()
        if answer.left_out:
            for stage in answer.left_out:
                service.metrics.left_out.labels(stage).inc()
            raise _UnfinishedError(Answer(result, answer.left_out, self.timings_ms))
        return result.members

    async def _search(self, session: SearchSession) -> tuple[SearchAnswer, ResultFragment]:
        """Searches; gets the query's vector, if needed, from the cache or the batcher."""
        cache, pool = self._service.cache, self._service.pool
        if session.plan.source == "text":
            if len(session.plan.text) <= SHORT_CHARS and not session.plan.prefix:
                tokens = session.preprocess()
            else:
                tokens = await pool.run(self._deadline, session.preprocess)
        if not session.needs_vector:  # no batch needed
            return await self._in_thread(session, partial(session.retrieve, None))
        known = cache.vector(self._index, session.text)
        if known is not None:
            return await self._in_thread(session, partial(session.retrieve, known))

        def finish(job: Job[Any], vector: Vector) -> tuple[SearchAnswer, ResultFragment, Vector]:
            session.clock.set(queue=job.queue_ms, encode=job.encode_ms)
            session.clock.gone = job.future.done
            return *_finish(partial(session.retrieve, vector)), vector

        answer, result, vector = await pool.batcher.run(self._index.encoder, tokens, finish, self._deadline)
        cache.put_vector(self._index, session.text, vector)
        return answer, result

    async def _in_thread(
        self, session: SearchSession, work: Callable[[], SearchAnswer], *, is_expensive: bool = False
    ) -> tuple[SearchAnswer, ResultFragment]:
        """Runs `_finish` in a thread, and stops it if nobody waits for it."""
        gone, pool = threading.Event(), self._service.pool
        session.clock.gone = gone.is_set
        run = pool.run_expensive if is_expensive else pool.run
        try:
            return await run(self._deadline, _finish, work)
        finally:
            gone.set()


class _UnfinishedError(DeadlineError):
    """Carries a response with steps skipped for lack of time, which must not be cached."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the deadline left no time for some steps")
        self.answer = answer


def _finish(work: Callable[[], SearchAnswer]) -> tuple[SearchAnswer, ResultFragment]:
    """Searches, and makes the JSON of the result; runs in a search thread."""
    try:
        answer = work()
    except (GlowError, LongHitsError) as error:
        # Its traceback would keep all fetched documents in memory until the next garbage collection.
        raise error.with_traceback(None) from None
    return answer, ResultFragment.of(answer.found)


def note(service: Service, context: RequestContext, index: Index, plan: SearchPlan, answer: Answer) -> None:
    """Counts an answer, and logs it in the query log if it is in the sample."""
    if "timeout" in answer.degraded:
        count_late(service, context)
    service.metrics.stages(answer.timings_ms)
    if not service.query_log.wants(context.request_id):
        return
    query = LoggedQuery(
        request_id=context.request_id,
        query=plan.text,
        retriever=plan.retriever,
        top_k=plan.top_k,
        offset=plan.offset,
        index=index.version,
        took_ms=context.took_ms(),
        filter=plan.asked_filter,
        degraded=answer.degraded,
    )
    service.query_log.log(query, answer.result)


def count_late(service: Service, context: RequestContext) -> None:
    """Counts a request with status 200 in which searches missed their deadline, once per request."""
    if not context.is_late:
        context.is_late = True
        service.metrics.rejected.labels(DeadlineError.code).inc()
