"""The readiness check, whose result concurrent probes share."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from glow.index import Index
from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.live.workers import WorkerGroup

__all__ = ["Readiness"]

FRESH_S = 0.5
"""How long a result is reused, in seconds: probes need no key, so many of them must not cause much work."""
LONGEST_S = 5.0


class Readiness:
    """Runs one check at a time in a separate thread: a queue of searches makes a service slow, not unready.

    Args:
        resources: the resources to check.
        group: all workers. None is ready until all have loaded the index, because each connection reaches
            any of them.
        processes: number of workers.
    """

    def __init__(self, resources: Resources, group: WorkerGroup, processes: int) -> None:
        self._resources = resources
        self._group = group
        self._processes = processes
        self._executor = ThreadPoolExecutor(1, "readiness")
        # The reason for not being ready, or None. An index or an error, whose traceback references one, must not be kept.
        self._check: asyncio.Future[str | None] | None = None
        self._asked = 0.0

    async def check(self) -> Index:
        """The live index, if the service is ready.

        Raises:
            DrainingError: if the service is shutting down.
            NotReadyError: if the index is still loading, or a resource does not respond in time.
        """
        self._resources.require_open()
        # These checks are cheap and never reused: once one worker reports that all are ready, no other may report the
        # opposite.
        self._resources.live()
        if self._processes > 1 and not self._group.have_loaded(self._processes):
            raise NotReadyError("not all workers have loaded the index yet; try again in a moment")
        now = time.monotonic()
        if self._check is None or (self._check.done() and now - self._asked > FRESH_S):
            self._asked = now
            self._check = asyncio.get_running_loop().run_in_executor(self._executor, self._find_fault)
        try:
            fault = await asyncio.wait_for(asyncio.shield(self._check), LONGEST_S)
        except TimeoutError as error:
            raise NotReadyError(f"the resources do not respond within {LONGEST_S:g} s") from error
        if fault is not None:
            raise NotReadyError(fault)
        return self._resources.live()

    def _find_fault(self) -> str | None:
        try:
            self._resources.check()
        except NotReadyError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Closes the thread without waiting for a running check."""
        self._executor.shutdown(wait=False, cancel_futures=True)
