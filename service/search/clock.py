"""How long each stage of a search took, and whether anyone still waits for the next."""

import time
from collections.abc import Callable

from glow_service.search.deadline import NEVER, Deadline

__all__ = ["StageClock"]


class StageClock:
    """Measures stages that follow one another, and ends a search whose time is over; starts when it is made.

    A thread cannot be stopped from outside: without this it would work on for a client that has its 504 already, while
    admission, which counts requests, lets the next one in.

    Args:
        deadline: after which nobody wants the answer.

    Attributes:
        gone: whether the client has left.
    """

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.timings_ms: dict[str, float] = {}
        self.gone: Callable[[], bool] = lambda: False
        self._deadline = deadline
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage.

        Raises:
            DeadlineError: if the deadline has passed, or the client has left.
        """
        now = time.perf_counter()
        self.timings_ms[stage] = (now - self._last) * 1_000
        self._last = now
        self.check()

    def switch(self, stage: str) -> None:
        """Adds the time since the last stage to a stage that comes in several pieces."""
        now = time.perf_counter()
        self.timings_ms[stage] = self.timings_ms.get(stage, 0.0) + (now - self._last) * 1_000
        self._last = now

    def check(self) -> None:
        """Looks for the end of a search within a long stage.

        Raises:
            DeadlineError: if the deadline has passed, or the client has left.
        """
        if self.gone() or self._deadline.has_passed:
            raise self._deadline.error()

    def has_no_time_for_another(self, reserve_s: float) -> Callable[[], bool]:
        """A function to ask before each of several like pieces of work: whether it would end too late, or for nobody.

        Args:
            reserve_s: seconds that must be left behind the last piece.
        """
        last, longest_s = time.perf_counter(), 0.0

        def is_over() -> bool:
            nonlocal last, longest_s
            now = time.perf_counter()
            longest_s, last = max(longest_s, now - last), now
            left_s = self._deadline.left_s()
            return self.gone() or (left_s is not None and left_s < longest_s + reserve_s)

        return is_over

    def set(self, **timings_ms: float) -> None:
        """Notes stages that were measured elsewhere, up to now."""
        self.timings_ms.update(timings_ms)
        self._last = time.perf_counter()
