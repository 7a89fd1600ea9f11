"""Until when somebody waits for an answer, as a value that goes with a request."""

import math
import time
from typing import Self

from glow_service.errors import DeadlineError

__all__ = ["NEVER", "Deadline"]


class Deadline:
    """A moment after which nobody wants the answer; immutable.

    Args:
        at: in seconds of `time.perf_counter()`; infinity: never.
    """

    __slots__ = ("at",)

    def __init__(self, at: float = math.inf) -> None:
        self.at = at

    @classmethod
    def after(cls, started: float, timeout_ms: float) -> Self:
        """So many milliseconds after a request's first byte, in `time.perf_counter()`."""
        return cls(started + timeout_ms / 1_000)

    @property
    def has_passed(self) -> bool:
        """Whether it is over."""
        return time.perf_counter() >= self.at

    def left_s(self) -> float | None:
        """Seconds that are left, >= 0; None for no end, as asyncio takes it."""
        return None if self.at == math.inf else max(self.at - time.perf_counter(), 0.0)

    def error(self) -> DeadlineError:
        """What a client hears that waited in vain."""
        return DeadlineError("the deadline passed before the answer was made; ask for a later one")

    def check(self) -> None:
        """Ends work that nobody waits for.

        Raises:
            DeadlineError: if the deadline has passed.
        """
        if self.has_passed:
            raise self.error()


NEVER = Deadline()
"""For work that nobody waits for with a watch in hand, such as a command's."""
