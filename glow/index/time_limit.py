"""Until when the search of this thread is wanted, for parts that wait for others: a thread cannot be stopped from outside."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["time_left_s", "wanted_until"]

_until: ContextVar[float] = ContextVar("wanted_until", default=math.inf)


@contextmanager
def wanted_until(at: float) -> Iterator[None]:
    """Says until when the search in this block is wanted.

    Args:
        at: in seconds of `time.perf_counter()`; infinity: for ever.
    """
    token = _until.set(at)
    try:
        yield
    finally:
        _until.reset(token)


def time_left_s() -> float:
    """Seconds that are left of this thread's search, >= 0; infinity if it has no end."""
    return max(_until.get() - time.perf_counter(), 0.0)
