"""Measures delays of the event loop: work that blocks it delays all clients of the process."""

import asyncio
import time
from collections import deque

from prometheus_client import Gauge

__all__ = ["LoopLag"]

TICK_S = 0.02
"""Interval of measurements, and so their precision, in seconds."""
WINDOW_S = 10.0
"""The gauge shows the longest delay of this time, so that a scrape does not miss it, in seconds."""


class LoopLag:
    """Measures the event loop in which `run` runs, until it is canceled.

    Args:
        gauge: set to the longest delay of the last ten seconds, in seconds.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        # Delays that no later one exceeds, longest first.
        self._longest: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Sleeps repeatedly, and records how late each wake-up is."""
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            self._note(now, max(now - due, 0.0))

    def _note(self, now: float, lag: float) -> None:
        longest = self._longest
        while longest and longest[-1][1] <= lag:
            longest.pop()
        longest.append((now, lag))
        while longest[0][0] < now - WINDOW_S:
            longest.popleft()
        self._gauge.set(longest[0][1])
