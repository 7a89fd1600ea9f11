"""Retries of requests that were never sent or temporarily refused, with increasing pauses and limits."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from glow.client.problems import retry_after_s
from glow.errors import ConfigError

__all__ = ["Outcome", "Retries", "RetryPolicy"]

Outcome = httpx.Response | httpx.RequestError
"""Outcome of one attempt: a response of any status, or a failure."""

_REFUSED_FOR_NOW = (429, 503)
# Failures before the request was sent, so the service cannot have acted on it.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to retry.

    Attributes:
        attempts: attempts in total; 1 disables retries.
        total_s: latest start of an attempt, in seconds after the start of the first.
        first_pause_s: longest pause before the second attempt, in seconds; it doubles with each attempt.
        longest_pause_s: upper bound of the doubled pause, in seconds; a `Retry-After` may be longer.
    """

    attempts: int = 4
    total_s: float = 30.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.total_s, self.first_pause_s, self.longest_pause_s) < 0:
            raise ConfigError(f"{self} is invalid; attempts must be at least 1, and times at least 0")


class Retries:
    """The attempts of one call.

    Args:
        policy: how often and how long.
        chance: returns a random number in [0, 1), so that clients that were refused together do not retry
            together.
        clock: returns monotonic seconds.
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
        """How long to wait before the next attempt.

        Args:
            outcome: outcome of the last attempt.

        Returns:
            Seconds, or None if the outcome is final.
        """
        self._made += 1
        asked_s = _asked(outcome)
        if asked_s is None or self._made >= self._policy.attempts:
            return None
        longest_s = min(self._policy.first_pause_s * 2 ** (self._made - 1), self._policy.longest_pause_s)
        # The jitter is added to the pause that the service requests.
        pause_s = asked_s + self._chance() * longest_s
        return pause_s if self._clock() - self._started + pause_s <= self._policy.total_s else None


def _asked(outcome: Outcome) -> float | None:
    """Shortest pause before another attempt, in seconds; None if there must be none."""
    if isinstance(outcome, httpx.RequestError):
        return 0.0 if isinstance(outcome, _NEVER_SENT) else None
    if outcome.status_code not in _REFUSED_FOR_NOW:
        return None
    return retry_after_s(outcome.headers.get("Retry-After")) or 0.0
