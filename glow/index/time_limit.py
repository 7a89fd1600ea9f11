"""The deadline of the current thread's search, for code that waits: a thread cannot be stopped from outside."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["time_left_s", "wanted_until"]

_until: ContextVar[float] = ContextVar("wanted_until", default=math.inf)


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
