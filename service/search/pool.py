"""The threads in which searches run, off the event loop."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from glow.index import set_numpy_threads
from glow.index.vectors import set_threads
from glow_service.search.deadline import Deadline

__all__ = ["SearchPool"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SearchPool:
    """Runs blocking work in a fixed number of threads; further work waits in a queue.

    Args:
        threads: number of parallel searches, >= 1.
        encode_threads: threads per search, >= 1.
        niceness: niceness of the threads, 0 to 19.

    Attributes:
        threads: number of parallel searches.
    """

    def __init__(self, threads: int, encode_threads: int, niceness: int = 0) -> None:
        self.threads = threads
        set_numpy_threads(encode_threads)
        limit = partial(_begin, encode_threads, niceness)
        self._executor = ThreadPoolExecutor(self.threads, "search", initializer=limit)
        # Work without encoding has its own threads, because the batcher relies on the ones above.
        self._side = ThreadPoolExecutor(self.threads, "side", initializer=limit)

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs work that does not encode in a thread, and returns its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._side, lambda: work(*args, **kwargs))

    async def run_by(
        self, deadline: Deadline, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Like `run`, until a deadline.

        Raises:
            DeadlineError: if the deadline passes first.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await self.run(work, *args, **kwargs)
        except TimeoutError as error:
            raise deadline.error() from error

    def submit(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Starts a batch in a search thread without waiting for it; the batch handles its own errors."""
        self._executor.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        for executor in (self._executor, self._side):
            executor.shutdown(wait=True, cancel_futures=True)


def _begin(encode_threads: int, niceness: int) -> None:
    # OpenMP's number of threads is per calling thread, so each thread sets it.
    set_threads(encode_threads)
    if niceness:
        with suppress(OSError):  # on other systems than Linux, the priority stays unchanged
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
