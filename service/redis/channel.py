"""The Redis channel on which replicas notify each other that CURRENT has changed.

A message, with any content, only makes its receivers check CURRENT, so an attacker with access to Redis can do no more.
The channel is optional: without Redis, every replica notices the change within `poll_interval_s`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from glow_service.redis.link import Link, connector, discard

__all__ = ["Channel", "channel_name"]

WITHIN_S = 1.0
"""Time limit for connecting, subscribing or publishing, in seconds."""
SILENT_S = 60.0
"""A connection without messages for so long is replaced, because it may be dead, in seconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
_logger = logging.getLogger(__name__)


def channel_name(index_root: Path) -> str:
    """Name of the channel; replicas whose index roots have the same folder name share it."""
    return f"glow:index:{index_root.resolve().name}"


class Channel:
    """Publishes and subscribes on one channel, in the event loop in which it was started.

    Args:
        url: address of Redis.
        name: name of the channel.
        on_message: called for each message, and whenever messages may have been missed.

    Raises:
        ConfigError: if the URL is not valid.
    """

    def __init__(self, url: str, name: str, on_message: Callable[[], None]) -> None:
        self._connect = connector(url)
        self._link = Link(url, 1)
        self._name = name
        self._on_message = on_message
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause_s = FIRST_PAUSE_S
        self._jitter = random.Random()  # noqa: S311 (no secret is made of it)

    def start(self) -> None:
        """Starts to listen."""
        self._loop = asyncio.get_running_loop()
        self._keep(self._listen())

    def announce(self) -> None:
        """Notifies the others; can be called from any thread, never blocks, and does nothing without Redis."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(lambda: self._keep(self._publish()))

    async def close(self) -> None:
        """Stops publishing and listening."""
        self._loop = None
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._link.close()

    def _keep(self, work: Any) -> None:
        """Runs a coroutine as a task, and keeps a reference, without which it could be garbage-collected."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self) -> None:
        with suppress(Exception):  # the others notice the change by polling
            async with asyncio.timeout(WITHIN_S):
                await self._link.exchange([("PUBLISH", self._name, b"look")])

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                continue
            except Exception as error:  # any error: try again
                if self._pause_s == FIRST_PAUSE_S:  # log only the first failure
                    fields = {"error": type(error).__name__, "reason": str(error)[:200]}
                    _logger.warning("cannot listen to redis for index changes", extra={"fields": fields})
            await asyncio.sleep(self._pause_s * self._jitter.uniform(0.5, 1.0))
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    async def _hear(self) -> None:
        """Listens on one connection; raises if it breaks, returns if there is no message for a while."""
        connection = self._connect()
        try:
            async with asyncio.timeout(WITHIN_S):
                await connection.connect()
                await connection.send_command("SUBSCRIBE", self._name)
                await connection.read_response()
            self._pause_s = FIRST_PAUSE_S
            with suppress(TimeoutError):
                while True:
                    self._on_message()  # also after subscribing: an earlier message may have been missed
                    async with asyncio.timeout(SILENT_S):
                        await connection.read_response()
        finally:
            await discard(connection)
