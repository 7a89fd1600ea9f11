"""The thread that loads the index at startup and then checks CURRENT: every `poll_interval_s`, and on request.

All loading happens in this thread, so that a new version reuses the allocator's memory of a previous one.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from glow.index.vectors import set_threads
from glow_service.live.resources import Resources
from glow_service.live.swap import Swap
from glow_service.live.workers import WorkerGroup

__all__ = ["ANNOUNCED_S", "Watcher"]

ANNOUNCED_S = 0.5
"""Longest random delay of a notified replica, in seconds, so that not all replicas load at the same moment."""
TICK_S = 0.25
"""Interval of checks for requests of other workers and for freed versions, in seconds."""
JITTER = 0.2
"""Largest relative variation of pauses."""
_logger = logging.getLogger(__name__)


class Watcher:
    """Polls `CURRENT` and hot-swaps the live index when it changes.

    Args:
        resources: resources with the live index.
        swap: checks CURRENT and swaps.
        group: all workers; they may request a check, and receive this worker's status.
        poll_interval_s: seconds between checks; 0: only on request.
        threads: threads per search, >= 1.
    """

    def __init__(
        self,
        resources: Resources,
        swap: Swap,
        group: WorkerGroup,
        poll_interval_s: float = 0.5,
        threads: int = 1,
    ) -> None:
        self._poll_interval_s = poll_interval_s
        self._threads = threads
        self._resources = resources
        self._swap = swap
        self._group = group
        self._changed = threading.Condition()
        self._asked: list[Future[None]] = []
        self._due = self._poll_due = 0.0
        self._told_due: float | None = None
        self._is_closed = False
        self._request = group.asked()
        # Unseeded on purpose: replicas must not check at the same times.
        self._jitter = random.Random()  # noqa: S311 (no secret is made of it)
        self.on_change: Callable[[], None] = lambda: None
        """Called in the thread after a check on request, or if this worker noticed a change of CURRENT by itself."""

    def run(self, load: Callable[[], bool]) -> None:
        """Runs the thread's work until `close`.

        Args:
            load: opens the first version; returns whether it succeeded.
        """
        set_threads(self._threads)  # OpenMP's setting is per calling thread
        if not load():
            return
        self._note()
        while (asked := self._wait()) is not None:
            try:
                self._look(is_asked=bool(asked))
            except Exception:  # any error: the next check must happen
                _logger.exception("unexpected error of the watcher")
            for future in asked:
                if future.set_running_or_notify_cancel():
                    future.set_result(None)

    def look(self) -> "Future[None]":
        """Requests a check that also tries a refused version again; the future completes after it."""
        future: Future[None] = Future()
        with self._changed:
            if self._is_closed:
                future.cancel()
            self._asked.append(future)
            self._changed.notify()
        return future

    def look_soon(self) -> None:
        """Schedules a check within half a second, because another replica noticed a change."""
        with self._changed:
            if self._told_due is None:
                self._told_due = time.monotonic() + self._jitter.uniform(0.0, ANNOUNCED_S)
            self._due = min(self._due, self._told_due)
            self._changed.notify()

    def close(self) -> None:
        """Stops the thread, without waiting for a load in progress; cancels requested checks."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            for future in self._asked:
                future.cancel()

    def _wait(self) -> "list[Future[None]] | None":
        """Waits until a check is due; returns the futures of requested checks, or None after `close`."""
        with self._changed:
            poll_interval_s = self._poll_interval_s
            self._due = time.monotonic() + min(poll_interval_s or TICK_S, TICK_S) * self._share()
            while not (self._asked or self._is_closed or time.monotonic() >= self._due):
                self._changed.wait(max(self._due - time.monotonic(), 0.0))
            asked, self._asked = self._asked, []
            return None if self._is_closed else asked

    def _share(self) -> float:
        return self._jitter.uniform(1 - JITTER, 1 + JITTER)

    def _is_time(self) -> bool:
        """Whether to check CURRENT without a request: polling is due, or another replica announced a change."""
        poll_interval_s, now = self._poll_interval_s, time.monotonic()
        if poll_interval_s and now >= self._poll_due:
            self._poll_due = now + poll_interval_s * self._share()
            return True
        return self._told_due is not None and now >= self._told_due

    def _look(self, *, is_asked: bool) -> None:
        request = self._group.asked()
        force = is_asked or request != self._request
        if force or self._is_time():
            with self._changed:
                is_told, self._told_due = self._told_due is not None, None
            has_changed = self._swap.follow(force=force)
            if is_asked or (has_changed and not is_told):
                self.on_change()
        self._request = request
        self._resources.held.tidy()
        self._note()

    def _note(self) -> None:
        refusal = self._swap.refusal
        self._group.note(self._resources.live().version, refusal.code if refusal else "", self._request)
