"""The shared cache of all workers, in Redis: reads have a time limit, writes happen in the background.

`get` and `put` always return in time and never raise. A failing Redis is not used for increasing pauses; after each
pause a separate probe, not a search, checks whether it works again. An envelope reveals values that are damaged,
truncated, or written by others:

    4 bytes  magic: "GLW" and the version of this layout
    16 bytes digest of key and value
    rest     the value

The digest contains no secret: it detects accidents, but not an attacker who can write to the Redis.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from glow_service.redis.link import Link
from glow_service.telemetry import KINDS, Kind, Metrics, RedisBudget, TierEvents

_MAGIC = b"GLW\x01"
_DIGEST_BYTES = 16
ENVELOPE_BYTES = len(_MAGIC) + _DIGEST_BYTES


def seal(key: bytes, value: bytes) -> bytes:
    """The bytes to store for a value under a key."""
    return _MAGIC + _digest(key, value) + value


def open_envelope(key: bytes, stored: bytes) -> bytes | None:
    """The value that was sealed under this key, or None if the bytes are not a valid envelope of it."""
    value = stored[ENVELOPE_BYTES:]
    return value if stored[:ENVELOPE_BYTES] == _MAGIC + _digest(key, value) else None


def _digest(key: bytes, value: bytes) -> bytes:
    # The key's length comes first, so that different pairs of key and value give different input.
    state = blake2b(b"%d:" % len(key), digest_size=_DIGEST_BYTES)
    state.update(key)
    state.update(value)
    return state.digest()


# A circuit breaker: stops calls to a failing Redis for increasing pauses.

# One late reply may be due to this busy process; three in a row are due to Redis.
FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0


class Breaker:
    """If closed, calls are allowed. Consecutive failures open it; after a pause, one call may probe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: random.Random | None = None
    ) -> None:
        self._clock = clock
        # Unseeded on purpose: workers must have different pauses.
        self._jitter = jitter or random.Random()  # noqa: S311 (no secret is made of it)
        self._failures = 0
        self._pauses = 0
        self._probing = False
        self._until = 0.0
        self.is_open = False
        self.pause_s = 0.0

    def take_probe(self) -> bool:
        """Whether the caller may make one probe, as the only one; it must report the outcome."""
        if not self.is_open or self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def drop_probe(self) -> None:
        """Ends a probe without an outcome; another one may start."""
        self._probing = False

    def succeeded(self) -> bool:
        """Records a success; returns whether it closed the breaker."""
        if not self.is_open:
            self._failures = self._pauses = 0
            return False
        if not self._probing:
            return False  # a call from before the breaker opened
        # The next failure opens it again, for longer: probes may succeed although real calls fail.
        self._failures = FAILURES_TO_OPEN - 1
        self.is_open = self._probing = False
        return True

    def failed(self) -> bool:
        """Records a failure; returns whether it opened a closed breaker."""
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


# Background writes to Redis: a short queue of values, which one task sends in batches.

MAX_WAITING = 512
MAX_WAITING_BYTES = 8 << 20
BATCH = 64
# A short delay, so that values share a round trip, and sending does not delay the response of the search.
LINGER_S = 0.005
# Nobody waits for a write, so it may take longer than a read, but a hanging Redis must be noticed.
TIMEOUT_S = 0.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    key: bytes
    value: bytes


class Writer:
    """Queues values and writes them in the background; drops them if Redis is too slow."""

    def __init__(self, link: Link, ttl_s: int, events: Mapping[Kind, TierEvents]) -> None:
        self._link = link
        self._ttl_s = ttl_s
        self._events = events
        # Separate from the breaker of reads: a full Redis refuses writes but still reads.
        self._breaker = Breaker()
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, kind: Kind, key: bytes, value: bytes) -> None:
        """Queues a value; drops it if the queue is full."""
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(value) > MAX_WAITING_BYTES:
            self._events[kind].count("dropped")
        elif self._breaker.is_open and not self._breaker.take_probe():
            self._events[kind].count("skipped")
        else:
            self._waiting.append(_Entry(kind, key, value))
            self._waiting_bytes += len(value)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stops the task; waiting values are dropped."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._drop_waiting("dropped")
        await self._link.close()

    async def _run(self) -> None:
        await asyncio.sleep(LINGER_S)
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._waiting_bytes -= sum(len(entry.value) for entry in batch)
            await self._send(batch)

    async def _send(self, batch: list[_Entry]) -> None:
        commands = [("SET", entry.key, seal(entry.key, entry.value), "EX", self._ttl_s) for entry in batch]
        # The default, because this task may be canceled.
        outcomes: list[str] = ["dropped"] * len(batch)
        failure: Exception | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                replies = await self._link.exchange(commands)
            outcomes = ["error" if isinstance(reply, ResponseError) else "store" for reply in replies]
            failure = next((reply for reply in replies if isinstance(reply, ResponseError)), None)
        except (TimeoutError, RedisTimeoutError) as error:
            outcomes, failure = ["timeout"] * len(batch), error
        except Exception as error:  # any error: no search waits for this
            outcomes, failure = ["error"] * len(batch), error
        finally:
            for entry, outcome in zip(batch, outcomes, strict=True):
                self._events[entry.kind].count(outcome)
        self._note(failure)

    def _note(self, failure: Exception | None) -> None:
        if failure is None:
            self._breaker.succeeded()
            return
        if self._breaker.failed():
            fields = {"error": type(failure).__name__, "reason": str(failure)[:200]}
            _logger.warning("redis writes fail; pausing them", extra={"fields": fields})
        if self._breaker.is_open:
            self._drop_waiting("skipped")

    def _drop_waiting(self, event: str) -> None:
        for entry in self._waiting:
            self._events[entry.kind].count(event)
        self._waiting.clear()
        self._waiting_bytes = 0


MAX_VALUE_BYTES = 1 << 20
"""Largest value that is written or read; a foreign value under the same key could be huge."""
READERS = 8
_PROBE_KEY = b"glow:probe"


class RedisCache:
    """Cached values in a Redis; only one event loop may use it."""

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
