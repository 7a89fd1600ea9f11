"""The bounded threads that searches run in, off the event loop."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from glow.search import set_threads
from service.errors import DeadlineError
from service.settings import Settings

__all__ = ["SearchPool"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SearchPool:
    """Runs blocking work in a fixed number of threads; more of it waits in line.

    Args:
        settings: `threads`, and `encode_threads` that one search may use.

    Attributes:
        threads: how many searches run side by side.
    """

    def __init__(self, settings: Settings) -> None:
        self.threads = settings.threads
        # OpenMP keeps its number of threads for each calling thread apart, so each of ours sets it.
        limit = partial(set_threads, settings.encode_threads)
        self._executor = ThreadPoolExecutor(self.threads, "search", initializer=limit)
        # What needs no tower must not look like a batch: the batcher counts on the threads above.
        self._side = ThreadPoolExecutor(self.threads, "side", initializer=limit)

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs `work`, which encodes nothing, in a thread and returns what it returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._side, lambda: work(*args, **kwargs))

    async def run_by(
        self, deadline: float, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """As `run`, for no longer than a deadline, in `time.perf_counter()`.

        Raises:
            DeadlineError: the deadline passed first.
        """
        try:
            async with asyncio.timeout(max(deadline - time.perf_counter(), 0.0)):
                return await self.run(work, *args, **kwargs)
        except TimeoutError as error:
            raise DeadlineError(
                "the deadline passed before the answer was made; ask for a later one"
            ) from error

    def submit(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Runs a batch, which handles its own errors, in a search thread without waiting for it."""
        self._executor.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        for executor in (self._executor, self._side):
            executor.shutdown(wait=True, cancel_futures=True)
