"""A circuit breaker: leaves a Redis that fails alone for a while, longer each time."""

import random
import time
from collections.abc import Callable

__all__ = ["FAILURES_TO_OPEN", "FIRST_PAUSE_S", "LONGEST_PAUSE_S", "Breaker"]

# One late answer may be this process's own fault, which was busy; three in a row are Redis's.
FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0


class Breaker:
    """Closed, calls go through. After failures in a row it opens; when its pause is over, one call may probe.

    Args:
        clock: seconds that never go back.
        jitter: makes pauses of several workers differ, so that they do not all come back at once.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: random.Random | None = None
    ) -> None:
        self._clock = clock
        # Unseeded on purpose: workers that start alike must not pause alike.
        self._jitter = jitter or random.Random()  # noqa: S311 (no secret is made of it)
        self._failures = 0
        self._pauses = 0
        self._probing = False
        self._until = 0.0
        self.is_open = False
        self.pause_s = 0.0

    def take_probe(self) -> bool:
        """Whether the caller, and nobody else, is to try once; it must report how that went."""
        if not self.is_open or self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def drop_probe(self) -> None:
        """The probe ended without an answer about Redis; another may be taken."""
        self._probing = False

    def succeeded(self) -> bool:
        """Notes a success; returns whether it closed the breaker."""
        if not self.is_open:
            self._failures = self._pauses = 0
            return False
        if not self._probing:
            return False  # a call from before the breaker opened
        # The next failure opens it again, for longer: probes may pass where real calls do not.
        self._failures = FAILURES_TO_OPEN - 1
        self.is_open = self._probing = False
        return True

    def failed(self) -> bool:
        """Notes a failure; returns whether it opened the breaker, which was closed."""
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
