"""Deadlines of requests."""

import math
import time
from typing import Self

from glow_service.errors import DeadlineError

__all__ = ["NEVER", "Deadline"]


class Deadline:
    """The time after which a response is not needed; immutable.

    Args:
        at: seconds of `time.perf_counter()`; infinity: never.
    """

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
        """Raises an error after the deadline.

        Raises:
            DeadlineError: if the deadline has passed.
        """
        if self.has_passed:
            raise self.error()


NEVER = Deadline()
"""No deadline, for example for commands."""
