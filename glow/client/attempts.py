"""The attempts of one call: retries with increasing pauses, and limits of time and size.

Only requests that were never sent or were refused for now are repeated. httpx bounds each read alone, so without these
limits an attempt could last forever.
"""

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx

from glow.client.errors import InvalidResponseError, retry_after_s
from glow.errors import ConfigError

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
    """Decides after each attempt of one call whether there is another."""

    def __init__(
        self,
        policy: RetryPolicy,
        # A random number in [0, 1), so that clients that were refused together do not retry together.
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._chance = chance
        self._clock = clock
        self._started = clock()
        self._made = 0

    def pause_after(self, outcome: Outcome) -> float | None:
        """Seconds to wait before the next attempt; None if the outcome of the last one is final."""
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


MAX_RESPONSE_BYTES = 64 << 20
_until: ContextVar[float] = ContextVar("until", default=math.inf)
"""End of this thread's attempt, in `time.monotonic()`."""


class Body:
    """Collects the decoded body of a response, of which the head was received."""

    def __init__(self, response: httpx.Response, most_bytes: int) -> None:
        self._response, self._most_bytes = response, most_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Adds received bytes, and ends the attempt if the body gets too long or its time is over."""
        self._data += data
        if len(self._data) > self._most_bytes:
            raise InvalidResponseError(
                f"{self._response.url} returned more than {self._most_bytes} bytes; request less, "
                "or raise max_response_bytes"
            )
        _left_s()

    def whole(self) -> httpx.Response:
        """The response with its body."""
        gone = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in self._response.headers.multi_items() if name not in gone]
        return httpx.Response(
            self._response.status_code,
            headers=headers,
            content=bytes(self._data),
            request=self._response.request,
        )


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Limits the time of all reads and writes that this thread does in the block."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def _left_s() -> float:
    left_s = _until.get() - time.monotonic()
    if left_s <= 0:
        raise httpx.ReadTimeout("the response was not complete in time")
    return left_s


def _bounded(timeout: float | None) -> float:
    left_s = _left_s()
    return left_s if timeout is None else min(timeout, left_s)


def bound_streams(http: httpx.Client) -> None:
    """Makes the connections of a new client respect `ends_within`.

    httpx has no hook for it, so this changes private members of its transports. Other transports stay unchanged:
    they bound each read, and `Body.add` checks the time between two parts of a body.
    """
    for transport in (http._transport, *http._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        if hasattr(pool, "_network_backend"):
            pool._network_backend = _Backend(pool._network_backend)


class _Backend:
    """Makes connections whose every step ends in time; same arguments as httpcore's backend."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> "_Stream":
        return _Stream(self._backend.connect_tcp(host, port, timeout=_bounded(timeout), **options))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> "_Stream":
        return _Stream(self._backend.connect_unix_socket(path, timeout=_bounded(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream:
    """A connection; each step may take at most the remaining time of the attempt."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._stream.read(max_bytes, timeout=_bounded(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout=_bounded(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout=_bounded(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
