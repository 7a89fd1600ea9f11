"""From a checked search to the bytes of its answer, by way of the caches and the batcher; shared by every search route."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from glow.errors import GlowError, StoreError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.query_log import LoggedQuery
from glow.runtime import EncodedText
from glow.search import Words
from glow_service.api.context import RequestContext
from glow_service.api.work_pools import Reading
from glow_service.cache import RedisBudget
from glow_service.errors import DeadlineError
from glow_service.fragment import ResultFragment
from glow_service.search import (
    CheckedSearch,
    Deadline,
    Job,
    LongHitsError,
    SearchAnswer,
    SearchSession,
    StageClock,
    WorkPool,
    encoded_of,
    result_body,
    to_bytes,
)
from glow_service.state import Service

__all__ = ["LONG_FILTER", "Answer", "count_late", "find", "note"]

_logger = logging.getLogger(__name__)
LONG_FILTER = 50
"""Terms of a filter that is checked, and made into a cache key, off the event loop."""
SHORT_CHARS = 200
"""A query of this length is preprocessed in less time than a thread takes to begin."""


@dataclass(slots=True)
class Answer:
    """What a search answers with.

    Attributes:
        result: what depends on index and request alone.
        degraded: what was left undone.
        timings_ms: stage -> milliseconds.
    """

    result: ResultFragment
    degraded: tuple[str, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)

    def envelope(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What stands before and after the result in every answer; times to the microsecond."""
        timings = {stage: round(value, 3) for stage, value in self.timings_ms.items()}
        return {"degraded": self.degraded}, {"timings_ms": timings}


async def find(reading: Reading, index: Index, checked: CheckedSearch, deadline: Deadline) -> Answer:
    """Answers a search from the cache, or by the towers and the index.

    Args:
        reading: the request: what answers it, in which worker pool, and what becomes of it if its hits are long.
        index: the version to answer from.
        checked: what was asked.
        deadline: by which the answer must be there.

    Raises:
        OverloadedError: if its hits are long, and the bulk worker pool has too few permits.
        QueryError: if the query holds no word.
        DeadlineError: if the deadline passed, and no partial answer was asked for.
        StoreError: if the vectors lie on a server that does not answer, or lost them; a hybrid search that may
            be partial is answered by words.
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
        _logger.warning("answered by words alone", extra={"fields": {"error": str(error)}})
        return await making.by_words()
    except DeadlineError as error:
        if not checked.allow_partial:
            raise _late(checked) from error
        return await asyncio.to_thread(_partial, making.session or SearchSession(index, checked.call))
    if not making.timings_ms:  # from the cache, or made by another request that asked the same just before
        clock.lap("cache")
        return Answer(result, (), clock.timings_ms)
    return Answer(result, (), making.timings_ms)


@dataclass(slots=True)
class _Making:
    """The making of one answer.

    Attributes:
        reading, index, checked, deadline: as `find` has them.
        budget: time that it may spend on Redis.
        session: the search; None until it begins.
        timings_ms: stage -> milliseconds of the search, once it is done.
    """

    reading: Reading
    index: Index
    checked: CheckedSearch
    deadline: Deadline
    budget: RedisBudget
    session: SearchSession | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)

    async def cached(self) -> ResultFragment:
        """The result from the cache, or made; requests that ask the same at the same time make it once."""
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
        """The answer of the words alone, if the server that holds the vectors does not answer; no cache keeps it."""
        by: Words = "lexical" if not self.index.holds(LEARNED_SPARSE) else "learned"
        call = replace(self.checked.call, retriever=by, rerank=None, fusion=None)
        session, work_pool = SearchSession(self.index, call, self.deadline), self.reading.work_pool
        await work_pool.pool.run_by(self.deadline, session.preprocess)
        answer, result = await _finish_by(work_pool, session, partial(session.retrieve, None))
        return Answer(result, ("dense",), dict(answer.timings_ms))

    async def _make(self) -> bytes:
        """Searches, and keeps what is not whole from the caches.

        Raises:
            _UnfinishedError: with the answer, if there was no time for all of it.
        """
        metrics = self.reading.service.metrics
        self.session = session = SearchSession(self.index, self.checked.call, self.deadline)
        session.reads_first = self.reading.reads_first
        try:
            answer, result = await self._search(session)
        except LongHitsError:
            answer, result = await _finish_by(self.reading.move(session), session, session.go_on)
        self.reading.pay(session)
        self.timings_ms = dict(answer.timings_ms)
        if answer.truncated:
            metrics.truncated.labels("query").inc()
        if answer.left_out:
            for stage in answer.left_out:
                metrics.left_out.labels(stage).inc()
            raise _UnfinishedError(Answer(result, answer.left_out, self.timings_ms))
        return result.members

    async def _search(self, session: SearchSession) -> tuple[SearchAnswer, ResultFragment]:
        """Searches, with the query's vector from the cache or the batcher if the search needs one."""
        cache, work_pool, call = self.reading.service.cache, self.reading.work_pool, session.call
        if call.source != "text":
            return await _finish_by(work_pool, session, partial(session.retrieve, None))
        if len(call.text) <= SHORT_CHARS:
            tokens = session.preprocess()
        else:
            tokens = await work_pool.pool.run_by(self.deadline, session.preprocess)
        if not session.needs_vector:  # so no batch either
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
    """The response of a search that left something out because its time ended: no cache may keep it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the deadline left no time for all that was asked")
        self.answer = answer


def count_late(service: Service, context: RequestContext) -> None:
    """Counts a request whose answer is a 200 although a search in it missed its deadline; once, however many did."""
    if not context.is_late:
        context.is_late = True
        service.metrics.rejected.labels(DeadlineError.code).inc()


async def _finish_by(
    work_pool: WorkPool, session: SearchSession, work: Callable[[], SearchAnswer]
) -> tuple[SearchAnswer, ResultFragment]:
    """`_finish` in a search thread, which is told when nobody waits for it any more."""
    gone = threading.Event()
    session.clock.gone = gone.is_set
    try:
        return await work_pool.pool.run_by(session.deadline, _finish, session, work)
    finally:
        gone.set()


def _finish(session: SearchSession, work: Callable[[], SearchAnswer]) -> tuple[SearchAnswer, ResultFragment]:
    """Search, documents and their JSON; runs in a search thread."""
    try:
        answer = work()
    except (GlowError, LongHitsError) as error:
        # Its traceback would keep every document that was read in memory, until the collector comes by.
        raise error.with_traceback(None) from None
    return answer, ResultFragment.of(result_body(session.index, session.call, answer))


def _partial(session: SearchSession) -> Answer:
    """What there is of a search whose time is over; nobody else is to get it from a cache."""
    answer = session.unfinished()
    result = ResultFragment.of(result_body(session.index, session.call, answer))
    return Answer(result, ("timeout",), dict(answer.timings_ms))


def note(
    service: Service, context: RequestContext, index: Index, checked: CheckedSearch, answer: Answer
) -> None:
    """Puts an answered search into the query log, if it is in the sample."""
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
        f"the deadline of {checked.timeout_ms} ms passed before the answer was made; "
        "allow more time (timeout_ms), or a partial answer (allow_partial)"
    )
