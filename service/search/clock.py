"""Measures the stages of a search, and ends a search that nobody waits for."""

import time
from collections.abc import Callable

from glow_service.search.deadline import NEVER, Deadline

__all__ = ["StageClock"]


class StageClock:
    """Measures consecutive stages, and ends a search after its deadline; starts when it is made.

    A thread cannot be stopped from outside. Without this check, it would continue after its client received a 504, while
    admission already accepts the next request.

    Args:
        deadline: deadline of the search.

    Attributes:
        gone: returns whether the client has disconnected.
    """

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.timings_ms: dict[str, float] = {}
        self.gone: Callable[[], bool] = lambda: False
        self._deadline = deadline
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage.

        Raises:
            DeadlineError: if the deadline has passed, or the client has disconnected.
        """
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
        """Ends a search within a long stage.

        Raises:
            DeadlineError: if the deadline has passed, or the client has disconnected.
        """
        if self.gone() or self._deadline.has_passed:
            raise self._deadline.error()

    def has_no_time_for_another(self, reserve_s: float) -> Callable[[], bool]:
        """A function to call before each of several similar steps: whether the step would end too late.

        Args:
            reserve_s: seconds that must remain after the last step.
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
        """Records stages that were measured elsewhere and ended now."""
        self.timings_ms.update(timings_ms)
        self._last = time.perf_counter()
