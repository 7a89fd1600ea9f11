"""A circuit breaker: stops calls to a failing Redis for increasing pauses."""

import random
import time
from collections.abc import Callable

__all__ = ["FAILURES_TO_OPEN", "FIRST_PAUSE_S", "LONGEST_PAUSE_S", "Breaker"]

# One late reply may be due to this busy process; three in a row are due to Redis.
FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0


class Breaker:
    """If closed, calls are allowed. Consecutive failures open it; after a pause, one call may probe.

    Args:
        clock: returns monotonic seconds.
        jitter: makes the pauses of several workers differ, so that they do not all retry at once.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: random.Random | None = None
    ) -> None:
        self._clock = clock
        # Unseeded on purpose: workers must have different pauses.
        self._jitter = jitter or random.Random()  # noqa: S311 (no secret is made of it)
        self._failures = 0
        self._pauses = 0
        self._probing = False
        self._until = 0.0
        self.is_open = False
        self.pause_s = 0.0

    def take_probe(self) -> bool:
        """Whether the caller may make one probe, as the only one; it must report the outcome."""
        if not self.is_open or self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def drop_probe(self) -> None:
        """Ends a probe without an outcome; another one may start."""
        self._probing = False

    def succeeded(self) -> bool:
        """Records a success; returns whether it closed the breaker."""
        if not self.is_open:
            self._failures = self._pauses = 0
            return False
        if not self._probing:
            return False  # a call from before the breaker opened
        # The next failure opens it again, for longer: probes may succeed although real calls fail.
        self._failures = FAILURES_TO_OPEN - 1
        self.is_open = self._probing = False
        return True

    def failed(self) -> bool:
        """Records a failure; returns whether it opened a closed breaker."""
        if self.is_open:
            if self._probing:
                self._probing = False
                self._pause()
            return False
        self._failures += 1
        if self._failures < FAILURES_TO_OPEN:
            return False
        self.is_open = True
        self._pause()
        return True

    def _pause(self) -> None:
        longest = min(FIRST_PAUSE_S * 2**self._pauses, LONGEST_PAUSE_S)
        self._pauses = min(self._pauses + 1, 30)
        self.pause_s = longest * self._jitter.uniform(0.5, 1.0)
        self._until = self._clock() + self.pause_s
