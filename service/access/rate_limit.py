"""Rate limits: one token bucket per client, in a table of limited size."""

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MAX_CLIENTS", "ClientLimits", "RateLimiter", "client_of"]

MAX_CLIENTS = 16_384
"""Most clients in the table, of about 300 bytes each."""

_SLACK = 1e-6
"""Tolerance in tokens, so that rounding does not refuse a client who waited exactly as long as requested."""
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"
_MAX_CLIENT_CHARS = 64


class RateLimiter:
    """Token buckets of up to `burst` tokens: a request takes its cost, and `rate` tokens return each second.

    A request needs one token to start, and pays the rest of its cost on credit. So a request that costs more than the
    burst can run; its client then waits until the debt is paid.

    Not thread-safe; only the event loop may use it.

    Args:
        rate: tokens per second, > 0.
        burst: tokens of a full bucket, >= 1.
        max_clients: most buckets; the least recently used one is dropped first, with its debt.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, rate: float, burst: int, max_clients: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._max_clients = max_clients
        self._clock = clock
        # A dict keeps insertion order: a used bucket is inserted again, so the first one is the least recently used.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str) -> int:
        """Takes the token that a request needs to start.

        Args:
            client: the client.

        Returns:
            0 if there was a token, otherwise whole seconds (>= 1) until there is one; a refused request costs nothing.
        """
        return self._take(client, 1.0, needed=1.0)

    def charge(self, client: str, cost: int) -> int:
        """Takes the cost of a request beyond its first token, on credit.

        Args:
            client: the client.
            cost: tokens, >= 1.

        Returns:
            0, or if the client is already in debt, whole seconds (>= 1) until the debt is paid. Then nothing is taken, and
            the request's first token is given back.
        """
        wait_s = self._take(client, float(cost), needed=0.0)
        if wait_s:
            self._take(client, -1.0, needed=-math.inf)
        return wait_s

    def owe(self, client: str, cost: int) -> None:
        """Takes the cost of work that was already done, even from a client in debt.

        Args:
            client: the client.
            cost: tokens, >= 1.
        """
        self._take(client, float(cost), needed=-math.inf)

    def _take(self, client: str, cost: float, needed: float) -> int:
        now = self._clock()
        tokens, then = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        lacking = needed - tokens
        if lacking <= _SLACK:
            tokens = min(self._burst, tokens - cost)
        self._buckets[client] = (tokens, now)
        if len(self._buckets) > self._max_clients:
            del self._buckets[next(iter(self._buckets))]
        return 0 if lacking <= _SLACK else max(1, math.ceil(lacking / self._rate))


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of clients, shared by all indexes of this process.

    Attributes:
        requests: requests per key, or per address if no keys are set; None: no limit.
        feedback: clicks and judgments per person; None: no limit.
    """

    requests: RateLimiter | None = None
    feedback: RateLimiter | None = None


def client_of(host: str) -> str:
    """The client of an address: the IPv4 address, or the /64 of an IPv6 address, which usually belongs to one person.

    Args:
        host: the address as text; other text from a proxy is used as it is, cut to 64 characters.
    """
    if ":" not in host:
        return host[:_MAX_CLIENT_CHARS]
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):
        return host[:_MAX_CLIENT_CHARS]
    if packed.startswith(_MAPPED_IPV4):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8].hex() + "::/64"
