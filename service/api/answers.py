"""From a checked search to the bytes of its answer, by way of the caches and the batcher; shared by every search route."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import GlowError, StoreError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.vectors import VECTORS
from glow.query_log import LoggedQuery
from glow.search import Words
from glow_service.api.context import RequestContext
from glow_service.api.lanes import Reading
from glow_service.cache import Cache, RedisBudget
from glow_service.errors import DeadlineError
from glow_service.fragment import ResultFragment
from glow_service.search import (
    CheckedSearch,
    Deadline,
    Job,
    Lane,
    LongHitsError,
    SearchAnswer,
    SearchSession,
    StageClock,
    result_body,
)
from glow_service.state import Service

__all__ = ["LONG_FILTER", "Answer", "count_late", "find", "note"]

_logger = logging.getLogger(__name__)
LONG_FILTER = 50
"""Terms of a filter that is checked, and made into a cache key, off the event loop."""
SHORT_CHARS = 200
"""A query of this length is preprocessed in less time than a thread takes to begin."""
NORM_TOLERANCE = 1e-2
Vector = NDArray[np.float32]


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


async def find(
    service: Service,
    lane: Lane,
    index: Index,
    checked: CheckedSearch,
    deadline: Deadline,
    reading: Reading,
) -> Answer:
    """Answers a search from the cache, or by the towers and the index.

    Args:
        service: what answers.
        lane: where its work is done.
        index: the version to answer from.
        checked: what was asked.
        deadline: by which the answer must be there.
        reading: what becomes of it if its hits are long.

    Raises:
        OverloadedError: if its hits are long, and the bulk lane has too few permits.
        QueryError: if the query holds no word.
        DeadlineError: if the deadline passed, and no partial answer was asked for.
        StoreError: if the vectors lie on a server that does not answer, or lost them; a hybrid search that may
            be partial is answered by words.
    """
    clock = StageClock()
    budget = service.cache.budget()
    timings: dict[str, float] = {}
    begun: list[SearchSession] = []

    async def make() -> bytes:
        session = SearchSession(index, checked.call, deadline)
        begun.append(session)
        session.reads_first = reading.reads_first
        try:
            answer, result = await _search(service.cache, lane, session, budget)
        except LongHitsError:
            answer, result = await _finish_by(reading.move(session), session, session.go_on)
        reading.pay(session)
        timings.update(answer.timings_ms)
        if answer.truncated:
            service.metrics.truncated.labels("query").inc()
        _require_whole(service, answer, result)
        return result.members

    try:
        result = await _cached(service.cache, lane, index, checked, make, deadline, budget)
    except _PartlyRerankedError as unfinished:
        return unfinished.answer
    except StoreError as error:
        service.metrics.dense_unavailable.inc()
        if not checked.allow_partial or checked.call.retriever != "hybrid":
            raise
        _logger.warning("answered by words alone", extra={"fields": {"error": str(error)}})
        return await _by_words(lane, index, checked, deadline)
    except DeadlineError as error:
        if not checked.allow_partial:
            raise _late(checked) from error
        session = begun[0] if begun else SearchSession(index, checked.call)
        return await asyncio.to_thread(_partial, session)
    if not timings:  # from the cache, or made by another request that asked the same just before
        clock.lap("cache")
        timings = clock.timings_ms
    return Answer(result, (), timings)


def _require_whole(service: Service, answer: SearchAnswer, result: ResultFragment) -> None:
    """Keeps a response that is not whole from the caches.

    Raises:
        _PartlyRerankedError: with the response, if time ended before all hits were re-ranked.
    """
    if answer.is_partly_reranked:
        service.metrics.rerank_partial.inc()
        raise _PartlyRerankedError(Answer(result, ("rerank_partial",), dict(answer.timings_ms)))


async def _by_words(lane: Lane, index: Index, checked: CheckedSearch, deadline: Deadline) -> Answer:
    """The answer of the words alone, where the server that holds the vectors does not answer; no cache keeps it."""
    by: Words = "lexical" if not index.holds(LEARNED_SPARSE) else "learned"
    call = replace(checked.call, retriever=by, rerank=None, fusion=None)
    session = SearchSession(index, call, deadline)
    await lane.pool.run_by(deadline, session.preprocess)
    answer, result = await _finish_by(lane, session, partial(session.retrieve, None))
    return Answer(result, ("dense",), dict(answer.timings_ms))


class _PartlyRerankedError(DeadlineError):
    """The response of a search whose time ended before all hits were re-ranked: no cache may keep it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("not all hits could be re-ranked before the deadline")
        self.answer = answer


def count_late(service: Service, context: RequestContext) -> None:
    """Counts a request whose answer is a 200 although a search in it missed its deadline; once, however many did."""
    if not context.is_late:
        context.is_late = True
        service.metrics.rejected.labels(DeadlineError.code).inc()


async def _cached(
    cache: Cache,
    lane: Lane,
    index: Index,
    checked: CheckedSearch,
    make: Callable[[], Awaitable[bytes]],
    deadline: Deadline,
    budget: RedisBudget,
) -> ResultFragment:
    """The result from the cache, or made; requests that ask the same at the same time make it once."""
    if not cache.enabled:
        return ResultFragment(await make())
    try:
        async with asyncio.timeout(deadline.left_s()):
            keys = cache.keys(index)
            is_long = checked.filter_terms > LONG_FILTER
            key = await lane.pool.run(keys.page, checked.call) if is_long else keys.page(checked.call)
            members, _ = await cache.get_or_make("page", key, make, budget)
    except TimeoutError as error:
        raise deadline.error() from error
    return ResultFragment(members)


async def _search(
    cache: Cache, lane: Lane, session: SearchSession, budget: RedisBudget
) -> tuple[SearchAnswer, ResultFragment]:
    index = session.index
    if session.call.source != "text":
        return await _finish_by(lane, session, partial(session.retrieve, None))
    if len(session.call.text) <= SHORT_CHARS:
        tokens = session.preprocess()
    else:
        tokens = await lane.pool.run_by(session.deadline, session.preprocess)
    if not session.needs_vector:  # so no batch either
        return await _finish_by(lane, session, partial(session.retrieve, None))
    key = cache.keys(index).vector(session.text) if cache.enabled else b""
    known = _vector(await cache.get("vector", key, budget), index[VECTORS].dimensions) if key else None
    if known is not None:
        return await _finish_by(lane, session, partial(session.retrieve, known))

    def finish(job: Job[Any], vector: Vector) -> tuple[SearchAnswer, ResultFragment, bytes]:
        session.clock.set(queue=job.queue_ms, encode=job.encode_ms)
        session.clock.gone = job.future.done
        return *_finish(session, partial(session.retrieve, vector)), vector.tobytes() if key else b""

    answer, result, encoded = await lane.batcher.run(index.encoder, tokens, finish, session.deadline)
    if key:
        cache.put("vector", key, encoded)
    return answer, result


def _vector(value: bytes | None, dimensions: int) -> Vector | None:
    """The query's vector that a cache gave, float32 [D]; None for what is not L2-normalised, as every vector is."""
    if value is None or len(value) != 4 * dimensions:
        return None
    vector = np.frombuffer(value, np.float32)
    return vector if abs(float(vector @ vector) - 1.0) < NORM_TOLERANCE else None


async def _finish_by(
    lane: Lane, session: SearchSession, work: Callable[[], SearchAnswer]
) -> tuple[SearchAnswer, ResultFragment]:
    """`_finish` in a search thread, which is told when nobody waits for it any more."""
    gone = threading.Event()
    session.clock.gone = gone.is_set
    try:
        return await lane.pool.run_by(session.deadline, _finish, session, work)
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
