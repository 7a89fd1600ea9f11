"""The shared cache of all workers, in Redis: reads have a time limit, writes happen in the background.

`get` and `put` always return in time and never raise. A failing Redis is not used for increasing pauses; after each
pause a separate probe, not a search, checks whether it works again.
"""

import asyncio
import logging
import time
from typing import Any

from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from glow_service.redis.breaker import Breaker
from glow_service.redis.envelope import ENVELOPE_BYTES, open_envelope
from glow_service.redis.link import Link
from glow_service.redis.writer import Writer
from glow_service.telemetry import KINDS, Kind, Metrics, RedisBudget, TierEvents

__all__ = ["MAX_VALUE_BYTES", "RedisCache"]

MAX_VALUE_BYTES = 1 << 20
"""Largest value that is written or read; a foreign value under the same key could be huge."""
READERS = 8
_PROBE_KEY = b"glow:probe"
_logger = logging.getLogger(__name__)


class RedisCache:
    """Cached values in a Redis; only one event loop may use it.

    Args:
        url: address of the Redis.
        timeout_s: time limit of a probe; a search has its own `RedisBudget`.
        ttl_s: lifetime of a value, in seconds.
        metrics: the service's metrics.

    Raises:
        ConfigError: if the URL is not valid.
    """

    def __init__(self, url: str, timeout_s: float, ttl_s: int, metrics: Metrics) -> None:
        self._events = {kind: TierEvents(metrics, "redis", kind) for kind in KINDS}
        self._link = Link(url, READERS)
        self._writer = Writer(Link(url, 1), ttl_s, self._events)
        self._timeout_s = timeout_s
        self._breaker = Breaker()
        self._probe: asyncio.Task[None] | None = None
        self._closed = False

    async def get(self, kind: Kind, key: bytes, budget: RedisBudget) -> bytes | None:
        """The value of a key, or None if Redis has none, or does not reply within the budget."""
        if self._breaker.is_open or self._closed:
            self._start_probe()
            self._count(kind, "skipped")
            return None
        if budget.left_s <= 0:
            self._count(kind, "skipped")
            return None
        started = time.monotonic()
        try:
            async with asyncio.timeout(budget.left_s):
                (reply,) = await self._link.exchange([_command(key)])
        except Exception as error:  # any error: the search continues without the cache
            self._count(kind, self._note_failure(error))
            return None
        finally:
            budget.left_s -= time.monotonic() - started
        return self._read(kind, key, reply)

    def put(self, kind: Kind, key: bytes, value: bytes) -> None:
        """Queues a value to be written in the background, or drops it; returns at once."""
        if self._closed or len(value) > MAX_VALUE_BYTES:
            self._count(kind, "skipped")
        else:
            self._writer.put(kind, key, value)

    async def close(self) -> None:
        """Stops all tasks; values that wait to be written are dropped."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        await self._writer.close()
        await self._link.close()

    def _read(self, kind: Kind, key: bytes, reply: Any) -> bytes | None:
        if isinstance(reply, ResponseError) and not str(reply).startswith("WRONGTYPE"):
            self._count(kind, self._note_failure(reply))
            return None
        self._breaker.succeeded()
        if reply == b"":  # Redis's reply for a missing key
            self._count(kind, "miss")
            return None
        # A foreign list or hash under this key gives no bytes.
        value = open_envelope(key, reply) if isinstance(reply, bytes) else None
        self._count(kind, "poisoned" if value is None else "hit")
        return value

    def _count(self, kind: Kind, event: str) -> None:
        self._events[kind].count(event)

    def _note_failure(self, error: Exception) -> str:
        """Reports a failure to the breaker; returns the event to count."""
        if self._breaker.failed():
            fields = {"error": type(error).__name__, "reason": str(error)[:200]}
            _logger.warning("redis reads fail; pausing them", extra={"fields": fields})
        return "timeout" if isinstance(error, TimeoutError | RedisTimeoutError) else "error"

    def _start_probe(self) -> None:
        if not self._closed and self._breaker.take_probe():
            self._probe = asyncio.get_running_loop().create_task(self._run_probe())

    async def _run_probe(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                (reply,) = await self._link.exchange([_command(_PROBE_KEY)])
            if isinstance(reply, ResponseError):
                raise reply
        except (RedisError, OSError):  # TimeoutError is one of the latter
            self._breaker.failed()
        except Exception:
            self._breaker.failed()
            _logger.exception("unexpected error of redis")
        else:
            if self._breaker.succeeded():
                _logger.info("redis responds again")
        finally:
            self._breaker.drop_probe()


def _command(key: bytes) -> tuple[str | bytes | int, ...]:
    """Reads one byte more than the largest value, to recognize longer, foreign values."""
    return ("GETRANGE", key, 0, MAX_VALUE_BYTES + ENVELOPE_BYTES)
