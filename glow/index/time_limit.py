"""The deadline of the current thread's search, for code that waits: a thread cannot be stopped from outside."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

__all__ = ["run_all", "time_left_s", "wanted_until"]

WAITING_THREADS = 32
_until: ContextVar[float] = ContextVar("wanted_until", default=math.inf)
_pool = ThreadPoolExecutor(WAITING_THREADS, "store")  # starts threads when they are needed


@contextmanager
def wanted_until(at: float) -> Iterator[None]:
    """Sets the deadline of the search in this block.

    Args:
        at: in seconds of `time.perf_counter()`; infinity: none.
    """
    token = _until.set(at)
    try:
        yield
    finally:
        _until.reset(token)


def time_left_s() -> float:
    """Seconds left for this thread's search, >= 0; infinity without a deadline."""
    return max(_until.get() - time.perf_counter(), 0.0)


def run_all(calls: Sequence[Callable[[], Any]], *, waits: bool) -> list[Any]:
    """Results of some calls, in their order.

    Args:
        calls: none may call this function.
        waits: whether they wait for a store, so that they run at once, each with the deadline of this thread.

    Raises:
        Exception: of the first call that failed; the others have ended then.
    """
    if not waits:
        return [call() for call in calls]
    started = [_pool.submit(copy_context().run, call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        for each in started:
            each.exception()  # waits
    return [first, *(each.result() for each in started)]
