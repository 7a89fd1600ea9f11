"""Background writes to Redis: a short queue of values, which one task sends in batches."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from glow_service.redis.breaker import Breaker
from glow_service.redis.envelope import seal
from glow_service.redis.link import Link
from glow_service.telemetry import Kind, TierEvents

__all__ = ["MAX_WAITING", "MAX_WAITING_BYTES", "Writer"]

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
    """Queues values and writes them in the background; drops them if Redis is too slow.

    Args:
        link: a separate link, so that writes do not delay searches.
        ttl_s: lifetime of a value, in seconds.
        events: counts the events, by kind.
    """

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
