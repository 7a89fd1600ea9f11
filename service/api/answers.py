"""Answers to searches: from the cache or the index, in the right worker pool."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starlette.types import Scope

from glow.errors import GlowError, StoreError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.query_log import LoggedQuery
from glow.runtime import EncodedText
from glow.search import Retriever
from glow_service.api.context import RequestContext
from glow_service.errors import DeadlineError
from glow_service.fragment import ResultFragment
from glow_service.search import (
    MOST_READING,
    CheckedSearch,
    Deadline,
    Job,
    LongHitsError,
    SearchAnswer,
    SearchSession,
    StageClock,
    WorkPool,
    WorkPoolName,
    encoded_of,
    to_bytes,
)
from glow_service.state import Service
from glow_service.telemetry import RedisBudget


def enter_work_pool(
    service: Service, context: RequestContext, scope: Scope, cost: int, name: WorkPoolName
) -> WorkPool:
    """Moves a request to a worker pool, and charges its key the cost.

    Before its body is read, a request takes one slot of the plain pool. In another pool it takes as many slots as
    its cost, or all if it costs more. Only accepted requests are charged: a refusal for lack of slots costs
    nothing.
    """
    work_pool = service.work_pools[name]
    if name != "plain":
        permits = min(cost, work_pool.admission.limit)
        work_pool.admission.enter(permits)
        context.release()
        context.hold(work_pool.admission, permits)
    service.access.charge(scope, context.key, cost)
    return work_pool


@dataclass(frozen=True, slots=True)
class Reading:
    """A search request and its worker pool, which changes if the hits turn out to be long."""

    service: Service
    context: RequestContext
    scope: Scope
    work_pool: WorkPool  # the worker pool in which it starts

    @property
    def reads_first(self) -> int | None:
        """Largest cost of its hits in this pool; None for no limit."""
        return None if self.work_pool is self.service.bulk else MOST_READING

    def move(self, session: SearchSession) -> WorkPool:
        """Moves the request to the bulk pool, with as many slots as the estimated cost of its remaining hits."""
        bulk = self.service.bulk
        permits = min(session.reading_left, bulk.admission.limit)
        bulk.admission.enter(permits)
        self.context.release()
        self.context.hold(bulk.admission, permits)
        return bulk

    def pay(self, session: SearchSession) -> None:
        """Charges the key for the cost of the hits."""
        self.service.access.owe(self.scope, self.context.key, session.reading_price)


# Answers a checked search through the caches and the batcher; shared by all search routes.

_logger = logging.getLogger(__name__)
LONG_FILTER = 50
"""Filters with more terms are checked and hashed to a cache key outside the event loop."""
SHORT_CHARS = 200
"""Shorter queries are preprocessed on the event loop, which is faster than starting a thread."""


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


async def find(reading: Reading, index: Index, checked: CheckedSearch, deadline: Deadline) -> Answer:
    """Answers a search from the cache or the index.

    If a store fails, a hybrid search that allows partial results becomes lexical or dense; others raise.
    """
    clock, metrics = StageClock(), reading.service.metrics
    making = _Making(reading, index, checked, deadline, reading.service.cache.budget())
    try:
        result = await making.cached()
    except _UnfinishedError as unfinished:
        return unfinished.answer
    except StoreError as error:
        metrics.dense_unavailable.inc()
        if not checked.allow_partial or checked.call.retriever != "hybrid":
            raise
        _logger.warning("one retriever only", extra={"fields": {"error": str(error)}})
        try:
            return await making.by_words()
        except StoreError:  # the words are in a store, too; perhaps only they are missing
            return await making.by_vectors()
    except DeadlineError as error:
        if not checked.allow_partial:
            raise _late(checked) from error
        return await asyncio.to_thread(_partial, making.session or SearchSession(index, checked.call))
    if not making.timings_ms:  # from the cache, or from a concurrent request for the same search
        clock.lap("cache")
        return Answer(result, (), clock.timings_ms)
    return Answer(result, (), making.timings_ms)


@dataclass(slots=True)
class _Making:
    """Makes one response."""

    reading: Reading
    index: Index
    checked: CheckedSearch
    deadline: Deadline
    budget: RedisBudget  # time limit for Redis
    session: SearchSession | None = None  # the search; None until it starts
    timings_ms: dict[str, float] = field(default_factory=dict)  # stage -> milliseconds of the finished search

    async def cached(self) -> ResultFragment:
        """The result from the cache, or from a search; concurrent requests for the same search share one."""
        cache, pool = self.reading.service.cache, self.reading.work_pool.pool
        if not cache.enabled:
            return ResultFragment(await self._make())
        try:
            async with asyncio.timeout(self.deadline.left_s()):
                page, call = cache.keys(self.index).page, self.checked.call
                is_long = self.checked.filter_terms > LONG_FILTER
                key = await pool.run(page, call) if is_long else page(call)
                members, _ = await cache.get_or_make("response", key, self._make, self.budget)
        except TimeoutError as error:
            raise self.deadline.error() from error
        return ResultFragment(members)

    async def by_words(self) -> Answer:
        """The lexical or learned sparse result, for a vector store that does not respond; it is not cached."""
        by: Retriever = "learned-sparse" if self.index.holds(LEARNED_SPARSE) else "lexical"
        call = replace(self.checked.call, retriever=by, rerank=None, fusion=None)
        session, work_pool = SearchSession(self.index, call, self.deadline), self.reading.work_pool
        await work_pool.pool.run_by(self.deadline, session.preprocess)
        answer, result = await _finish_by(work_pool, session, partial(session.retrieve, None))
        return Answer(result, ("dense",), dict(answer.timings_ms))

    async def by_vectors(self) -> Answer:
        """The dense result, for a store that lacks the words; it is not cached."""
        call = replace(self.checked.call, retriever="dense", rerank=None, fusion=None)
        answer, result = await self._search(SearchSession(self.index, call, self.deadline))
        return Answer(result, ("lexical",), dict(answer.timings_ms))

    async def _make(self) -> bytes:
        """Searches; an incomplete result is raised as `_UnfinishedError`, so that it is not cached."""
        metrics = self.reading.service.metrics
        self.session = session = SearchSession(self.index, self.checked.call, self.deadline)
        session.reads_first = self.reading.reads_first
        try:
            answer, result = await self._search(session)
        except LongHitsError:
            answer, result = await _finish_by(self.reading.move(session), session, session.go_on)
        self.reading.pay(session)
        self.timings_ms = dict(answer.timings_ms)
        if answer.found.query.truncated:
            metrics.truncated.labels("query").inc()
        if answer.left_out:
            for stage in answer.left_out:
                metrics.left_out.labels(stage).inc()
            raise _UnfinishedError(Answer(result, answer.left_out, self.timings_ms))
        return result.members

    async def _search(self, session: SearchSession) -> tuple[SearchAnswer, ResultFragment]:
        """Searches; gets the query's vector, if needed, from the cache or the batcher."""
        cache, work_pool, call = self.reading.service.cache, self.reading.work_pool, session.call
        if call.source != "text":
            return await _finish_by(work_pool, session, partial(session.retrieve, None))
        if len(call.text) <= SHORT_CHARS:
            tokens = session.preprocess()
        else:
            tokens = await work_pool.pool.run_by(self.deadline, session.preprocess)
        if not session.needs_vector:  # no batch needed
            return await _finish_by(work_pool, session, partial(session.retrieve, None))
        key = cache.keys(self.index).vector(session.text) if cache.enabled else b""
        found = await cache.get("vector", key, self.budget) if key else None
        known = encoded_of(found, self.index.encoder, len(tokens))
        if known is not None:
            return await _finish_by(work_pool, session, partial(session.retrieve, known))

        def finish(job: Job[Any], encoded: EncodedText) -> tuple[SearchAnswer, ResultFragment, bytes]:
            session.clock.set(queue=job.queue_ms, encode=job.encode_ms)
            session.clock.gone = job.future.done
            return *_finish(session, partial(session.retrieve, encoded)), to_bytes(encoded) if key else b""

        answer, result, encoded = await work_pool.batcher.run(
            self.index.encoder, tokens, finish, self.deadline
        )
        if key:
            cache.put("vector", key, encoded)
        return answer, result


class _UnfinishedError(DeadlineError):
    """Carries a response with steps skipped for lack of time, which must not be cached."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the deadline left no time for some steps")
        self.answer = answer


def count_late(service: Service, context: RequestContext) -> None:
    """Counts a request with status 200 in which searches missed their deadline, once per request."""
    if not context.is_late:
        context.is_late = True
        service.metrics.rejected.labels(DeadlineError.code).inc()


async def _finish_by(
    work_pool: WorkPool, session: SearchSession, work: Callable[[], SearchAnswer]
) -> tuple[SearchAnswer, ResultFragment]:
    """Runs `_finish` in a search thread, and stops it if nobody waits for it."""
    gone = threading.Event()
    session.clock.gone = gone.is_set
    try:
        return await work_pool.pool.run_by(session.deadline, _finish, session, work)
    finally:
        gone.set()


def _finish(session: SearchSession, work: Callable[[], SearchAnswer]) -> tuple[SearchAnswer, ResultFragment]:
    """Searches, and makes the JSON of the result; runs in a search thread."""
    try:
        answer = work()
    except (GlowError, LongHitsError) as error:
        # Its traceback would keep all fetched documents in memory until the next garbage collection.
        raise error.with_traceback(None) from None
    return answer, ResultFragment.of(answer.found)


def _partial(session: SearchSession) -> Answer:
    """The partial result of a search after its deadline; it is not cached."""
    answer = session.unfinished()
    return Answer(ResultFragment.of(answer.found), ("timeout",), dict(answer.timings_ms))


def note(
    service: Service, context: RequestContext, index: Index, checked: CheckedSearch, answer: Answer
) -> None:
    """Logs a search in the query log, if it is in the sample."""
    if not service.query_log.wants(context.request_id):
        return
    call = checked.call
    query = LoggedQuery(
        request_id=context.request_id,
        query=call.text,
        retriever=call.retriever,
        top_k=call.top_k,
        offset=call.offset,
        index=index.version,
        took_ms=context.took_ms(),
        filter=checked.filter,
        degraded=answer.degraded,
    )
    service.query_log.log(query, answer.result)


def _late(checked: CheckedSearch) -> DeadlineError:
    return DeadlineError(
        f"the deadline of {checked.timeout_ms} ms passed before the response was ready; "
        "allow more time (timeout_ms), or partial results (allow_partial)"
    )
