"""The bounded threads that searches run in, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from glow.search import set_threads
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

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs `work` in one of the threads and returns what it returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))

    def submit(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Runs `work`, which handles its own errors, without waiting for it."""
        self._executor.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        self._executor.shutdown(wait=True, cancel_futures=True)
