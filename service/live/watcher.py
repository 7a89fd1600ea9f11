"""The thread that loads the index at start, and then looks at CURRENT: every `poll_interval_s`, and whenever it is asked to.

All loading is done in this one thread, so that what a version leaves in the allocator serves the next one.
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
"""Within this time, in seconds and by chance, a replica that is told looks: not all of them load at the same moment."""
TICK_S = 0.25
"""How often at least to see whether another worker asks for a look, and whether a replaced version has gone."""
JITTER = 0.2
"""Share by which pauses differ."""
_logger = logging.getLogger(__name__)


class Watcher:
    """Keeps the live index what CURRENT names.

    Args:
        resources: where the live index is.
        swap: what a look is.
        group: other workers, who may ask for a look and are told what is live.
        poll_interval_s: seconds between looks; 0 for none but those that are asked for.
        threads: that one search may use, >= 1.
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
        # Unseeded on purpose: replicas that start alike must not look alike.
        self._jitter = random.Random()  # noqa: S311 (no secret is made of it)
        self.on_change: Callable[[], None] = lambda: None
        """Called in the thread when this worker is the one that saw CURRENT change, or was asked to look."""

    def run(self, load: Callable[[], bool]) -> None:
        """The thread's work, until `close`.

        Args:
            load: opens the first version; returns whether it could.
        """
        set_threads(self._threads)  # OpenMP keeps the number for each calling thread apart
        if not load():
            return
        self._note()
        while (asked := self._wait()) is not None:
            try:
                self._look(is_asked=bool(asked))
            except Exception:  # whatever it is, the next look must come
                _logger.exception("unexpected error of the watcher")
            for future in asked:
                if future.set_running_or_notify_cancel():
                    future.set_result(None)

    def look(self) -> "Future[None]":
        """Asks for a look that also tries a refused version again; the future is done after it."""
        future: Future[None] = Future()
        with self._changed:
            if self._is_closed:
                future.cancel()
            self._asked.append(future)
            self._changed.notify()
        return future

    def look_soon(self) -> None:
        """Another replica has seen CURRENT change: look within half a second."""
        with self._changed:
            if self._told_due is None:
                self._told_due = time.monotonic() + self._jitter.uniform(0.0, ANNOUNCED_S)
            self._due = min(self._due, self._told_due)
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread, or leaves it to itself where it is loading; whoever waits for a look waits no longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            for future in self._asked:
                future.cancel()

    def _wait(self) -> "list[Future[None]] | None":
        """Whoever asks for a look, once it is time for one; None at the end."""
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
        """Whether to look at CURRENT unasked: it is due, or another replica told of a change."""
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
