"""How often each client may ask: one token bucket a client, in a table that cannot grow without bound."""

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MAX_CLIENTS", "ClientLimits", "RateLimiter", "client_of"]

MAX_CLIENTS = 16_384
"""Clients whose rate is remembered, at some 300 bytes each."""

_SLACK = 1e-6
"""Part of a token that rounding may cost a client who waited just as long as it was told."""
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"
_MAX_CLIENT_CHARS = 64


class RateLimiter:
    """Token buckets: each holds `burst` tokens, a request takes its cost, and `rate` come back each second.

    A request begins where one token is there, and pays what it costs more on credit: a dear one must not be refused for ever
    because its cost exceeds the burst, and whoever sent it waits until the debt is paid back.

    Not safe to share between threads; the event loop owns it.

    Args:
        rate: tokens a second, > 0.
        burst: tokens of a full bucket, >= 1.
        max_clients: buckets to keep; the one that was idle longest is forgotten first, and with it what it owed.
        clock: seconds that never go backwards.
    """

    def __init__(
        self, rate: float, burst: int, max_clients: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._max_clients = max_clients
        self._clock = clock
        # A dict keeps the order of insertion: a bucket in use is put in again, so the first one is the idlest.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str) -> int:
        """Takes a token, with which a request begins.

        Args:
            client: whose.

        Returns:
            0 where there was one, else the whole seconds (>= 1) until there is; a refused request costs nothing.
        """
        return self._take(client, 1.0, needed=1.0)

    def charge(self, client: str, cost: int) -> int:
        """Takes what a request costs beyond its first token, on credit.

        Args:
            client: whose.
            cost: tokens, >= 1.

        Returns:
            0, or where the client is in debt already the whole seconds (>= 1) until it is not; then nothing is taken, and the
            request's first token is given back.
        """
        wait_s = self._take(client, float(cost), needed=0.0)
        if wait_s:
            self._take(client, -1.0, needed=-math.inf)
        return wait_s

    def owe(self, client: str, cost: int) -> None:
        """Takes what work cost that was done already, whatever the client owes.

        Args:
            client: whose.
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
    """What one client may do in this process, however many indexes it serves.

    Attributes:
        requests: by key, or by address where no keys are set; None: as many as it likes.
        feedback: clicks and judgments by who made them; None: as many as it likes.
    """

    requests: RateLimiter | None = None
    feedback: RateLimiter | None = None


def client_of(host: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 address, which one person has to himself.

    Args:
        host: the address as text; a proxy may send anything, which then stands for itself, cut to 64 characters.
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
