"""The Redis channel by which replicas tell one another that CURRENT has changed.

A message only makes its readers look at CURRENT, whatever it says: who may write to Redis may cost them a look, no more.
Nothing depends on it. With a Redis that is dead, or none, every replica sees the change by itself within `poll_interval_s`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from glow_service.cache import Link, connector, discard

__all__ = ["Channel", "channel_name"]

WITHIN_S = 1.0
"""How long connecting, subscribing or publishing may take."""
SILENT_S = 60.0
"""A connection that brings nothing for so long is made anew: a peer that vanished says nothing, either."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
_logger = logging.getLogger(__name__)


def channel_name(index_root: Path) -> str:
    """Replicas hear one another where their index roots have the same folder name."""
    return f"glow:index:{index_root.resolve().name}"


class Channel:
    """Speaks and listens on one channel; belongs to the event loop that it is started in.

    Args:
        url: of Redis.
        name: of the channel.
        on_message: called for each message, and after each time that messages may have been missed.

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
        """Begins to listen."""
        self._loop = asyncio.get_running_loop()
        self._keep(self._listen())

    def announce(self) -> None:
        """Tells the others to look; from any thread, at once, and whether or not Redis is there."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(lambda: self._keep(self._publish()))

    async def close(self) -> None:
        """Stops both."""
        self._loop = None
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._link.close()

    def _keep(self, work: Any) -> None:
        """Runs a coroutine; the loop alone would forget it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self) -> None:
        with suppress(Exception):  # the others see the change by themselves, a moment later
            async with asyncio.timeout(WITHIN_S):
                await self._link.exchange([("PUBLISH", self._name, b"look")])

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                continue
            except Exception as error:  # whatever it is, the next try comes
                if self._pause_s == FIRST_PAUSE_S:  # once, not for every try
                    fields = {"error": type(error).__name__, "reason": str(error)[:200]}
                    _logger.warning("redis brings no news of the index", extra={"fields": fields})
            await asyncio.sleep(self._pause_s * self._jitter.uniform(0.5, 1.0))
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    async def _hear(self) -> None:
        """Listens on one connection until it breaks (raises) or is silent for long (returns)."""
        connection = self._connect()
        try:
            async with asyncio.timeout(WITHIN_S):
                await connection.connect()
                await connection.send_command("SUBSCRIBE", self._name)
                await connection.read_response()
            self._pause_s = FIRST_PAUSE_S
            with suppress(TimeoutError):
                while True:
                    self._on_message()  # after subscribing, too: a message may have come before
                    async with asyncio.timeout(SILENT_S):
                        await connection.read_response()
        finally:
            await discard(connection)
