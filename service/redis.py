"""The responses that all workers share, in Redis. Only a service with a Redis imports this (70 ms).

`get` and `put` return in time and never raise: a search waits for Redis once, for at most `redis_timeout_ms`.
"""

import asyncio
import logging
import random
import time
from functools import partial
from hashlib import blake2b

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from glow.errors import ConfigError
from glow_service.telemetry.metrics import Metrics, tier_events

READERS, WRITERS = 8, 2
"""Connections. Writes have their own, so that reads do not wait for them."""
MAX_VALUE_BYTES = 1 << 20
"""Largest value that is written or read; a foreign value under the same key could be huge."""
MAX_WAITING_BYTES = 8 << 20
"""Most bytes of values that wait to be written; each counts as 16 KiB or more."""
WRITE_S = 0.5
"""Time limit of a write, for which no search waits, in seconds."""
FAILURES_TO_OPEN = 3
"""One late reply may be due to this busy process; three in a row are due to Redis."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0
# Callers limit whole calls. redis-py limits parts by `asyncio.wait_for`, which can lose a cancellation in Python 3.11.
_NO_TIMEOUTS = {"socket_timeout": None, "socket_connect_timeout": None}
_VERSION = b"\x02"
_HEAD_BYTES = 1 + 16
_logger = logging.getLogger(__name__)


def seal(key: bytes, value: bytes) -> bytes:
    """The bytes to store under a key: a version, a digest that detects damage and foreign values, and the value."""
    return _VERSION + blake2b(value, digest_size=_HEAD_BYTES - 1, key=key).digest() + value


def unsealed(key: bytes, stored: object) -> bytes | None:
    """The value that was sealed under this key, or None if it is damaged or foreign."""
    value = stored[_HEAD_BYTES:] if isinstance(stored, bytes) else b""
    return value if stored == seal(key, value) else None


class Breaker:
    """Stops calls after failures in a row, for pauses that double; after each pause one call tries again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures = 0
        self._until = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether Redis counts as failed."""
        return self._failures >= FAILURES_TO_OPEN

    def allows(self) -> bool:
        """Whether the caller may call Redis; it then reports the outcome."""
        if not self.is_open:
            return True
        if time.monotonic() < self._until:
            return False
        self._trying = True
        self._until = time.monotonic() + FIRST_PAUSE_S  # if the outcome is never reported, another call tries
        return True

    def succeeded(self) -> None:
        """Records a reply."""
        if self.is_open:
            _logger.info("redis %s work again", self._name)
        self._failures, self._trying = 0, False

    def failed(self, error: Exception) -> str:
        """Records a failure; returns the event to count."""
        if not self.is_open or self._trying:  # otherwise the call is from before it opened
            self._failures += 1
            self._trying = False
            doublings = min(self._failures - FAILURES_TO_OPEN, 30)
            if self._failures == FAILURES_TO_OPEN:
                fields = {"error": type(error).__name__, "reason": str(error)[:200]}
                _logger.warning("redis %s fail; pausing them", self._name, extra={"fields": fields})
            pause_s = min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S)
            self._until = time.monotonic() + pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        return "timeout" if isinstance(error, TimeoutError | RedisTimeoutError) else "error"


class RedisCache:
    """Responses in a Redis; only one event loop may use it."""

    def __init__(self, url: str, timeout_s: float, ttl_s: int, metrics: Metrics) -> None:
        self._count = tier_events(metrics, "redis", "response")
        self._reader, self._writer = redis_client(url, READERS), redis_client(url, WRITERS)
        # Separate: a full Redis refuses writes but still reads.
        self._reads, self._writes = Breaker("reads"), Breaker("writes")
        self._timeout_s, self._ttl_s = timeout_s, ttl_s
        self._tasks: set[asyncio.Task[str]] = set()
        self._waiting_bytes = 0

    async def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None if Redis has none, or does not reply in time."""
        if not self._reads.allows():
            self._count("skipped")
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                # One byte more than the largest value, to recognize longer, foreign values.
                stored = await self._reader.getrange(key, 0, MAX_VALUE_BYTES + _HEAD_BYTES)
        except Exception as error:  # any error: the search continues without the cache
            if not (isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")):
                self._count(self._reads.failed(error))
                return None
            stored = "a foreign list or hash"
        self._reads.succeeded()
        value = unsealed(key, stored)
        self._count("miss" if stored == b"" else "poisoned" if value is None else "hit")
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Writes a value in the background, or drops it; returns at once."""
        size = max(len(value), 16 << 10)
        if len(value) > MAX_VALUE_BYTES or not self._writes.allows():
            self._count("skipped")
        elif self._waiting_bytes + size > MAX_WAITING_BYTES:
            self._count("dropped")
        else:
            self._waiting_bytes += size
            task = asyncio.get_running_loop().create_task(self._write(key, value))
            self._tasks.add(task)
            task.add_done_callback(partial(self._written, size))

    async def close(self) -> None:
        """Closes the connections; values that wait to be written are dropped."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in (self._reader, self._writer):
            await client.aclose()

    async def _write(self, key: bytes, value: bytes) -> str:
        try:
            async with asyncio.timeout(WRITE_S):
                await self._writer.set(key, seal(key, value), ex=self._ttl_s)
        except Exception as error:  # any error: no search waits for this
            return self._writes.failed(error)
        self._writes.succeeded()
        return "store"

    def _written(self, size: int, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        self._waiting_bytes -= size
        self._count("dropped" if task.cancelled() else task.result())


async def ping_redis(url: str, timeout_s: float = 2.0) -> float:
    """Seconds that a Redis takes to reply."""
    client = redis_client(url, 1)
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s):
            await client.ping()
    except (TimeoutError, RedisError, OSError) as error:
        reason = str(error) or f"no reply within {timeout_s:g} s"
        raise ConfigError(f"Redis does not respond: {reason}; start it, or remove --redis-url") from error
    finally:
        await client.aclose()
    return time.perf_counter() - started


def redis_client(url: str, connections: int) -> Redis:
    """A client that waits for a free connection, and tries once more if Redis has closed an idle one."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=None,
            protocol=2,
            retry=Retry(NoBackoff(), 1),
            **_NO_TIMEOUTS,
        )
        pool.make_connection()  # type: ignore[no-untyped-call] # checks the options
    except Exception:  # redis-py may raise any, and its message may quote the URL with the password
        raise ConfigError(
            "redis_url is not valid; expected redis://[[user]:password@]host:port/database, rediss://… or unix://…"
        ) from None
    return Redis.from_pool(pool)
