"""How long the event loop was held up: whatever does not give it back keeps every client of the process waiting."""

import asyncio
import time
from collections import deque

from prometheus_client import Gauge

__all__ = ["LoopLag"]

TICK_S = 0.02
"""Pause between two looks; a hold-up is seen to within this."""
WINDOW_S = 10.0
"""The gauge shows the longest hold-up of this time, so that a scrape does not miss it."""


class LoopLag:
    """Measures the loop in which `run` runs, until that is cancelled.

    Args:
        gauge: set to the longest delay of the last ten seconds, in seconds.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        # Delays that no later one exceeds, the longest first.
        self._longest: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Looks how late each look comes."""
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
