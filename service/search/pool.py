"""The bounded threads that searches run in, off the event loop."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from glow.index.vectors import set_threads
from glow_service.search.deadline import Deadline

__all__ = ["SearchPool"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SearchPool:
    """Runs blocking work in a fixed number of threads; more of it waits in line.

    Args:
        threads: how many searches run side by side, >= 1.
        encode_threads: threads that one search may use, >= 1.
        niceness: 0 to 19; how far the threads stand back for others.

    Attributes:
        threads: how many searches run side by side.
    """

    def __init__(self, threads: int, encode_threads: int, niceness: int = 0) -> None:
        self.threads = threads
        limit = partial(_begin, encode_threads, niceness)
        self._executor = ThreadPoolExecutor(self.threads, "search", initializer=limit)
        # What needs no tower must not look like a batch: the batcher counts on the threads above.
        self._side = ThreadPoolExecutor(self.threads, "side", initializer=limit)

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs `work`, which encodes nothing, in a thread and returns what it returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._side, lambda: work(*args, **kwargs))

    async def run_by(
        self, deadline: Deadline, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """As `run`, for no longer than a deadline.

        Raises:
            DeadlineError: if the deadline passes first.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await self.run(work, *args, **kwargs)
        except TimeoutError as error:
            raise deadline.error() from error

    def submit(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Runs a batch, which handles its own errors, in a search thread without waiting for it."""
        self._executor.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        for executor in (self._executor, self._side):
            executor.shutdown(wait=True, cancel_futures=True)


def _begin(encode_threads: int, niceness: int) -> None:
    # OpenMP keeps its number of threads for each calling thread apart, so each of ours sets it.
    set_threads(encode_threads)
    if niceness:
        with suppress(OSError):  # another system than Linux: the worker pool has the priority of the process
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
