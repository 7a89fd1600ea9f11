"""The search threads of a process: admission, batches of queries for the query encoder, and expensive requests."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index import set_numpy_threads
from glow.index.vectors import set_threads
from glow.runtime import Encoder
from glow.text import WeightedTokens
from glow_service.errors import OverloadedError
from glow_service.search.clock import Deadline
from glow_service.telemetry.metrics import Metrics

_P = ParamSpec("_P")
_T = TypeVar("_T")

ENCODE_THREADS = 1
"""Threads of one search: several searches use the cores better than one."""
BATCH_TOKENS = 512
"""Most tokens of a query encoder's batch, with padding."""
EXPENSIVE_SHARE = 4
"""Expensive requests may take one of so many slots; the others stay free for plain searches."""
EXPENSIVE_NICENESS = 10
"""Niceness of their threads: beside a plain search, they get about a tenth of a shared core (sched(7))."""


class Admission:
    """Slots of one process; only its event loop may use them.

    A request without a slot is refused at once: its client can use another replica, or retry.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def enter(self) -> None:
        """Takes a slot; `leave` releases it."""
        if self.taken >= self.limit:
            raise OverloadedError(f"{self.taken} of {self.limit} requests are in work; try again in a moment")
        self.taken += 1

    def leave(self) -> None:
        """Releases a slot."""
        self.taken -= 1


class SearchPool:
    """Runs searches in a fixed number of threads, off the event loop.

    Expensive requests (batches, explanations, wide pages, re-ranking) have slots and threads of low priority.
    """

    def __init__(self, metrics: Metrics, threads: int, limit: int) -> None:
        self.threads = threads
        self.admission = Admission(limit)
        self.expensive = Admission(max(limit // EXPENSIVE_SHARE, 1))
        set_numpy_threads(ENCODE_THREADS)
        # Batches take at most half of the threads, so other work never waits for all of them.
        self._searches = ThreadPoolExecutor(2 * threads, "search", initializer=_begin)
        self._expensive = ThreadPoolExecutor(
            threads, "expensive", initializer=partial(_begin, EXPENSIVE_NICENESS)
        )
        self.batcher = Batcher(self, metrics)

    async def run(
        self, deadline: Deadline, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Runs work of a plain search that does not encode, until a deadline."""
        return await self._run(self._searches, deadline, partial(work, *args, **kwargs))

    async def run_expensive(
        self, deadline: Deadline, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Runs work of a request that has a slot of `expensive`."""
        return await self._run(self._expensive, deadline, partial(work, *args, **kwargs))

    async def _run(self, executor: ThreadPoolExecutor, deadline: Deadline, work: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await asyncio.get_running_loop().run_in_executor(executor, work)
        except TimeoutError as error:
            raise deadline.error() from error

    def submit(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Starts a batch in a search thread without waiting for it; the batch handles its own errors."""
        self._searches.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        for executor in (self._searches, self._expensive):
            executor.shutdown(wait=True, cancel_futures=True)


def _begin(niceness: int = 0) -> None:
    # OpenMP's number of threads is per calling thread, so each thread sets it.
    set_threads(ENCODE_THREADS)
    if niceness:
        with suppress(OSError):  # on other systems than Linux, the priority stays unchanged
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


# Micro-batching of queries for the query encoder. If a thread is idle, a query is encoded alone, at once. While all
# threads are busy, queries wait in classes of similar length. The next free thread takes the class of the query that
# waited longest, up to a token limit. So batches grow with load, and padding is limited. The same thread runs each
# job's continuation (search, fetch), so that a query changes threads only twice.

CLASS_TOKENS = 16
"""Lengths in a class differ by less than this. One more run of the encoder costs as much as 11 tokens of padding
(docs/results/serving.md)."""


@dataclass(slots=True, eq=False)
class Job(Generic[_T]):
    """One text to encode."""

    encoder: Encoder  # the encoder; only jobs with the same one share a batch
    tokens: WeightedTokens
    continuation: Callable[["Job[_T]", NDArray[np.float32]], _T]  # uses the vector in the same thread
    deadline: Deadline  # deadline of the result
    future: "asyncio.Future[_T]"  # the result or the error; canceled if the client disconnected
    queued: float = field(default_factory=time.perf_counter)  # `time.perf_counter()` when the job was queued
    queue_ms: float = 0.0
    encode_ms: float = 0.0


class Batcher:
    """Groups jobs into batches and runs them in the search threads; only the event loop may use it."""

    def __init__(self, pool: SearchPool, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._classes: dict[tuple[int, int], deque[Job[Any]]] = {}
        self._idle = pool.threads
        self._scheduled = False
        self.waiting = 0  # jobs in the queue, including canceled ones whose turn has not come
        self.running = 0  # jobs in threads

    async def run(
        self,
        encoder: Encoder,
        tokens: WeightedTokens,
        continuation: Callable[[Job[_T], NDArray[np.float32]], _T],
        deadline: Deadline,
    ) -> _T:
        """Encodes a text in a batch; returns the continuation's result."""
        loop = asyncio.get_running_loop()
        job = Job(encoder, tokens, continuation, deadline, loop.create_future())
        self._classes.setdefault((id(encoder), (len(tokens) - 1) // CLASS_TOKENS), deque()).append(job)
        self.waiting += 1
        if not self._idle:
            self._metrics.queue_depth.set(self.waiting)
        if not self._scheduled and self._idle and self.waiting:
            # After the event loop has read the requests of its current turn.
            self._scheduled = True
            loop.call_soon(self._dispatch, loop)
        left_s = deadline.left_s()
        alarm = None if left_s is None else loop.call_later(left_s, _expire, job)
        try:
            result: _T = await job.future
            return result
        finally:
            if alarm is not None:
                alarm.cancel()

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        while self._idle and self.waiting:
            batch = self._take(min(self._classes, key=lambda key: self._classes[key][0].queued))
            if batch:
                self._idle -= 1
                self.running += len(batch)
                self._pool.submit(self._work, loop, batch)
        self._metrics.queue_depth.set(self.waiting)

    def _take(self, key: tuple[int, int]) -> list[Job[Any]]:
        """Takes the next jobs of a class; expired ones get their error, canceled ones are dropped."""
        jobs = self._classes[key]
        batch: list[Job[Any]] = []
        longest = 0
        while jobs:
            width = max(longest, len(jobs[0].tokens))
            if batch and width * (len(batch) + 1) > BATCH_TOKENS:
                break
            job = jobs.popleft()
            self.waiting -= 1
            if job.deadline.has_passed:
                _expire(job)
            if not job.future.done():
                batch.append(job)
                longest = width
        if not jobs:
            del self._classes[key]
        return batch

    def _work(self, loop: asyncio.AbstractEventLoop, batch: list[Job[Any]]) -> None:
        """Runs a batch in a search thread, and returns every result as soon as it is ready."""
        try:
            started = time.perf_counter()
            # Deadlines may have passed while this thread was busy with other work.
            jobs = [job for job in batch if not (job.deadline.has_passed or job.future.done())]
            if not jobs:
                return
            vectors = jobs[0].encoder.run([job.tokens for job in jobs])
            encode_ms = (time.perf_counter() - started) * 1_000
            lengths = [len(job.tokens) for job in jobs]
            self._metrics.batch_queries.observe(len(jobs))
            self._metrics.padding_ratio.observe(1 - sum(lengths) / (max(lengths) * len(lengths)))
            for job, vector in zip(jobs, vectors, strict=True):
                job.queue_ms, job.encode_ms = (started - job.queued) * 1_000, encode_ms
                _finish(loop, job, vector)
        except BaseException as error:  # any error: each waiting client must receive it
            for job in batch:
                loop.call_soon_threadsafe(_fail, job.future, error)
        finally:
            loop.call_soon_threadsafe(self._free, loop, len(batch))

    def _free(self, loop: asyncio.AbstractEventLoop, done: int) -> None:
        self._idle += 1
        self.running -= done
        if self.waiting:
            self._dispatch(loop)


def _finish(loop: asyncio.AbstractEventLoop, job: Job[Any], vector: NDArray[np.float32]) -> None:
    """Runs a job's continuation, unless its client disconnected or its deadline passed."""
    if job.future.done():
        return
    if job.deadline.has_passed:
        loop.call_soon_threadsafe(_expire, job)
        return
    try:
        result = job.continuation(job, vector)
    except Exception as error:  # an error of one job must not affect the others
        loop.call_soon_threadsafe(_fail, job.future, error)
    else:
        loop.call_soon_threadsafe(_settle, job.future, result)


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _expire(job: Job[Any]) -> None:
    _fail(job.future, job.deadline.error())
