"""When to try again: what cannot have been done yet, or was refused for now; later each time, and not for ever."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from glow.client.problems import retry_after_s
from glow.errors import ConfigError

__all__ = ["Outcome", "Retries", "RetryPolicy"]

Outcome = httpx.Response | httpx.RequestError
"""What one try brought: an answer, whatever its status, or none."""

_REFUSED_FOR_NOW = (429, 503)
# The request was not sent, so nothing can have been done for it; a cut connection may have been cut after that.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to try.

    Attributes:
        attempts: tries in all; 1 never tries again.
        total_s: no try begins later than this after the first one began, in seconds.
        first_pause_s: longest pause before the second try, in seconds; it doubles from try to try.
        longest_pause_s: where doubling ends, in seconds; a `Retry-After` may be longer.
    """

    attempts: int = 4
    total_s: float = 30.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.total_s, self.first_pause_s, self.longest_pause_s) < 0:
            raise ConfigError(
                f"{self} asks for less than one try or for negative time; give at least 1 and 0"
            )


class Retries:
    """The tries of one call.

    Args:
        policy: how often and how long.
        chance: a number in [0, 1), different each time: clients that were refused together must not come
            back together.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._chance = chance
        self._clock = clock
        self._started = clock()
        self._made = 0

    def pause_after(self, outcome: Outcome) -> float | None:
        """How long to wait before the next try.

        Args:
            outcome: what the last try brought.

        Returns:
            Seconds, or None where that outcome is the call's.
        """
        self._made += 1
        asked_s = _asked(outcome)
        if asked_s is None or self._made >= self._policy.attempts:
            return None
        longest_s = min(self._policy.first_pause_s * 2 ** (self._made - 1), self._policy.longest_pause_s)
        # Never sooner than the service asks; the jitter comes on top of it.
        pause_s = asked_s + self._chance() * longest_s
        return pause_s if self._clock() - self._started + pause_s <= self._policy.total_s else None


def _asked(outcome: Outcome) -> float | None:
    """Seconds that have to pass at least before another try; None where there must be none."""
    if isinstance(outcome, httpx.RequestError):
        return 0.0 if isinstance(outcome, _NEVER_SENT) else None
    if outcome.status_code not in _REFUSED_FOR_NOW:
        return None
    return retry_after_s(outcome.headers.get("Retry-After")) or 0.0
