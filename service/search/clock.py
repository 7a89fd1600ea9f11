"""Deadlines, and the clock that measures the stages of a search."""

import math
import time
from collections.abc import Callable
from typing import Self

from glow_service.errors import DeadlineError


class Deadline:
    """The time after which a response is not needed; immutable."""

    __slots__ = ("at",)

    def __init__(self, at: float = math.inf) -> None:
        self.at = at

    @classmethod
    def after(cls, started: float, timeout_ms: float) -> Self:
        """A deadline some milliseconds after a request's first byte, which is in `time.perf_counter()`."""
        return cls(started + timeout_ms / 1_000)

    @property
    def has_passed(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() >= self.at

    def left_s(self) -> float | None:
        """Remaining seconds, >= 0; None for no deadline, as for asyncio."""
        return None if self.at == math.inf else max(self.at - time.perf_counter(), 0.0)

    def error(self) -> DeadlineError:
        """The error of a passed deadline."""
        return DeadlineError("the deadline passed before the response was ready; raise timeout_ms")

    def check(self) -> None:
        """Raises an error after the deadline."""
        if self.has_passed:
            raise self.error()


NEVER = Deadline()
"""No deadline, for example for commands."""


# Measures the stages of a search, and ends a search that nobody waits for.


class StageClock:
    """Measures consecutive stages, and ends a search after its deadline, as no thread can be stopped from outside."""

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.timings_ms: dict[str, float] = {}
        self.gone: Callable[[], bool] = lambda: False
        self._deadline = deadline
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage."""
        now = time.perf_counter()
        self.timings_ms[stage] = (now - self._last) * 1_000
        self._last = now
        self.check()

    def switch(self, stage: str) -> None:
        """Adds the time since the last stage to a stage that has several parts."""
        now = time.perf_counter()
        self.timings_ms[stage] = self.timings_ms.get(stage, 0.0) + (now - self._last) * 1_000
        self._last = now

    def check(self) -> None:
        """Ends a search within a long stage."""
        if self.gone() or self._deadline.has_passed:
            raise self._deadline.error()

    def has_no_time_for_another(self, reserve_s: float) -> Callable[[], bool]:
        """A function for each of several similar steps: whether it would end with under `reserve_s` seconds left."""
        last, longest_s = time.perf_counter(), 0.0

        def is_over() -> bool:
            nonlocal last, longest_s
            now = time.perf_counter()
            longest_s, last = max(longest_s, now - last), now
            left_s = self._deadline.left_s()
            return self.gone() or (left_s is not None and left_s < longest_s + reserve_s)

        return is_over

    def set(self, **timings_ms: float) -> None:
        """Records stages that were measured elsewhere and ended now."""
        self.timings_ms.update(timings_ms)
        self._last = time.perf_counter()
