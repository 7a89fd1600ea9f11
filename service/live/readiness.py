"""Whether every resource answers, asked once for all who want to know."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from glow.index import Index
from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.live.workers import WorkerGroup

__all__ = ["Readiness"]

FRESH_S = 0.5
"""How long an answer counts: probes are free to anyone, so they must not be work for each."""
LONGEST_S = 5.0


class Readiness:
    """One check at a time, in a thread of its own: a line of searches makes a service slow, not unready.

    Args:
        resources: what is checked.
        group: the other workers. Until all have loaded the index, no one is ready: whoever asks after a start reaches
            any of them, and what he sends next another one.
        processes: workers of the service.
    """

    def __init__(self, resources: Resources, group: WorkerGroup, processes: int) -> None:
        self._resources = resources
        self._group = group
        self._processes = processes
        self._executor = ThreadPoolExecutor(1, "readiness")
        # Why it is not ready, or None: neither an index nor an error, whose traceback holds one, may stay here.
        self._check: asyncio.Future[str | None] | None = None
        self._asked = 0.0

    async def check(self) -> Index:
        """The live index, if all is well.

        Raises:
            DrainingError: if the service is about to stop.
            NotReadyError: if no index yet, or a resource does not answer, or not in time.
        """
        self._resources.require_open()
        # What is still to come is never remembered, and costs a look into a small folder at most: once one worker has
        # said that all are ready, no other may say that they are not.
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
            raise NotReadyError(f"the resources do not answer within {LONGEST_S:g} s") from error
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
        """Leaves a check that still runs to itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
