"""From a checked search to the bytes of its answer, by way of the caches and the batcher; shared by every search route."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from glow.query_log import LoggedQuery
from glow.search import Index
from glow.text import WeightedTokens
from service.api.checks import CheckedSearch
from service.api.context import RequestContext
from service.api.documents import index_body
from service.api.pages import page_body
from service.batcher import Job
from service.cache import RedisBudget
from service.calls import SearchAnswer
from service.errors import DeadlineError
from service.pipeline import preprocess, retrieve
from service.stage_clock import StageClock
from service.state import Service

__all__ = ["Answer", "find", "head_of", "note"]

SHORT_CHARS = 200
"""A query of this length is preprocessed in less time than a thread takes to begin."""
Vector = NDArray[np.float32]


@dataclass(slots=True)
class Answer:
    """What a search answers with.

    Attributes:
        page: members of the JSON object that depend on index and request alone (`index`, `query`, `hits`), without
            the braces around them.
        degraded: what was left undone.
        timings_ms: stage -> milliseconds.
    """

    page: bytes
    degraded: tuple[str, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)


async def find(service: Service, index: Index, checked: CheckedSearch, deadline: float) -> Answer:
    """Answers a search from the cache, or by the towers and the index.

    Args:
        service: what answers.
        index: the version to answer from.
        checked: what was asked.
        deadline: `time.perf_counter()` by which the answer must be there.

    Raises:
        QueryError: the query holds no word.
        DeadlineError: the deadline passed, and no partial answer was asked for.
    """
    clock = StageClock()
    budget = service.cache.budget()
    timings: dict[str, float] = {}

    async def make() -> bytes:
        answer, page = await _search(service, index, checked, deadline, budget)
        timings.update(answer.timings_ms)
        if answer.truncated:
            service.metrics.truncated.labels("query").inc()
        return page

    try:
        page = await _cached(service, index, checked, make, deadline, budget)
    except DeadlineError as error:
        if not checked.allow_partial:
            raise _late(checked) from error
        return Answer(_nothing(index, checked), ("timeout",), timings)
    if not timings:  # from the cache, or made by another request that asked the same just before
        clock.lap("cache")
        timings = clock.timings_ms
    return Answer(page, (), timings)


def count_late(service: Service, context: RequestContext) -> None:
    """Counts a request whose answer is a 200 although a search in it missed its deadline; once, however many did."""
    if not context.is_late:
        context.is_late = True
        service.metrics.rejected.labels(DeadlineError.code).inc()


async def _cached(
    service: Service,
    index: Index,
    checked: CheckedSearch,
    make: Callable[[], Awaitable[bytes]],
    deadline: float,
    budget: RedisBudget,
) -> bytes:
    """The page from the cache, or made; requests that ask the same at the same time make it once."""
    cache = service.cache
    if not cache.enabled:
        return await make()
    try:
        async with asyncio.timeout(max(deadline - time.perf_counter(), 0.0)):
            page, _ = await cache.get_or_make(
                "page", cache.keys(index).page(checked.call, checked.fields), make, budget
            )
    except TimeoutError as error:
        raise DeadlineError("the deadline passed") from error
    return page


async def _search(
    service: Service, index: Index, checked: CheckedSearch, deadline: float, budget: RedisBudget
) -> tuple[SearchAnswer, bytes]:
    cache = service.cache
    clock = StageClock(deadline)
    text = checked.call.text
    if len(text) <= SHORT_CHARS:
        tokens = preprocess(index.preprocessor, text)
    else:
        tokens = await service.pool.run_by(deadline, preprocess, index.preprocessor, text)
    clock.lap("preprocess")
    if checked.call.retriever == "lexical":  # no vector is needed, so no batch either
        return await _finish_by(service, deadline, index, checked, tokens, None, clock)
    key = cache.keys(index).vector(checked.call.text) if cache.enabled else b""
    known = await cache.get("vector", key, budget) if key else None
    if known is not None and len(known) == 4 * index.dense.dimensions:
        vector = np.frombuffer(known, np.float32)
        return await _finish_by(service, deadline, index, checked, tokens, vector, clock)

    def then(job: Job[Any], vector: Vector) -> tuple[SearchAnswer, bytes, bytes]:
        clock.set(queue=job.queue_ms, encode=job.encode_ms)
        clock.gone = job.future.done
        return *_finish(index, checked, tokens, vector, clock), vector.tobytes() if key else b""

    answer, page, made = await service.batcher.run(index.encoder, tokens, then, deadline)
    if key:
        cache.put("vector", key, made)
    return answer, page


async def _finish_by(
    service: Service,
    deadline: float,
    index: Index,
    checked: CheckedSearch,
    tokens: WeightedTokens,
    vector: Vector | None,
    clock: StageClock,
) -> tuple[SearchAnswer, bytes]:
    """`_finish` in a search thread, which is told when nobody waits for it any more."""
    gone = threading.Event()
    clock.gone = gone.is_set
    try:
        return await service.pool.run_by(deadline, _finish, index, checked, tokens, vector, clock)
    finally:
        gone.set()


def _finish(
    index: Index, checked: CheckedSearch, tokens: WeightedTokens, vector: Vector | None, clock: StageClock
) -> tuple[SearchAnswer, bytes]:
    """Search, documents and their JSON; runs in a search thread."""
    answer = retrieve(index, checked.call, tokens, vector, clock)
    return answer, orjson.dumps(page_body(index, checked.call, checked.fields, answer))[1:-1]


def _nothing(index: Index, checked: CheckedSearch) -> bytes:
    """The page of a search whose time was over before anything was found."""
    query = {"text": checked.call.text, "tokens": 0, "truncated": False, "terms": []}
    return orjson.dumps({"index": index_body(index), "query": query, "hits": []})[1:-1]


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
    service.query_log.log(query, answer.page)


def _late(checked: CheckedSearch) -> DeadlineError:
    return DeadlineError(
        f"the deadline of {checked.timeout_ms} ms passed before the answer was made; "
        "allow more time (timeout_ms), or a partial answer (allow_partial)"
    )


def head_of(context: RequestContext) -> bytes:
    """The first members of an answer: request id and time; a well-formed id needs no escapes."""
    return f'"request_id":"{context.request_id}","took_ms":{context.took_ms():.3f},'.encode()
