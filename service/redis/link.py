"""Connections to Redis with limited replies, and the channel on which replicas notify each other."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from glow.errors import ConfigError

MAX_REPLY_BYTES = (1 << 20) + 64
"""The largest value with its envelope; messages of the channel have four bytes."""
MAX_ITEMS = 3
"""Most items of a list, as in a reply to a subscription; nested lists are refused."""


class BoundedParser(_AsyncRESP2Parser):
    """redis-py's parser, which refuses replies that are longer than any expected one."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self._is_in_list = False

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Like redis-py's method."""
        self._is_in_list = False
        return await super().read_response(*arguments, **options)

    async def _read(self, length: int) -> bytes:
        if not 0 <= length <= MAX_REPLY_BYTES:
            raise InvalidResponse(f"found a reply of {length} bytes, expected at most {MAX_REPLY_BYTES}")
        return bytes(await super()._read(length))

    async def _readline(self) -> bytes:
        line = bytes(await super()._readline())
        if line.startswith(b"*") and line != b"*-1":
            if self._is_in_list or not line[1:].isdigit() or int(line[1:]) > MAX_ITEMS:
                raise InvalidResponse(f"found a nested list, or a list of more than {MAX_ITEMS} items")
            self._is_in_list = True
        return line


# A limited number of connections to Redis, each for one caller at a time; failed ones are closed.

Command = tuple[bytes | str | int, ...]


class Link:
    """Sends commands to Redis and reads the replies.

    It has no time limit: callers use `asyncio.timeout`. A canceled call closes its connection, so that a late
    reply is not read as the reply to the next command.
    """

    def __init__(self, url: str, size: int) -> None:
        self._connect = connector(url)
        self._free: list[Any] = []
        self._turns = asyncio.Semaphore(size)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands together and returns their replies; an error reply is returned as a `ResponseError`."""
        async with self._turns:
            if self._free:
                # Redis may have closed an idle connection or restarted: try a new one.
                with suppress(RedisConnectionError, OSError):
                    return await self._exchange_on(self._free.pop(), commands)
                await self.close()
            return await self._exchange_on(self._connect(), commands)

    async def close(self) -> None:
        """Closes the unused connections."""
        while self._free:
            await discard(self._free.pop())

    async def _exchange_on(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        try:
            await connection.connect()
            await connection.send_packed_command(connection.pack_commands(commands))
            replies = [await _reply(connection) for _ in commands]
        except BaseException:
            await discard(connection)
            raise
        self._free.append(connection)
        return replies


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def discard(connection: Any) -> None:
    """Closes a connection at once."""
    with suppress(Exception):
        await connection.disconnect(nowait=True)


def check_redis_url(url: str) -> None:
    """Checks a URL without connecting; "" is valid."""
    if url:
        connector(url)


def connector(url: str) -> Callable[[], Any]:
    """A function that makes an unconnected connection."""
    options = _options(url)
    kind: Any = options.pop("connection_class", Connection)
    try:
        kind(**options)
    except Exception as error:  # invalid options of the URL may raise any exception in redis-py
        raise ConfigError(f"redis_url has options that cannot be used ({type(error).__name__})") from None
    return partial(kind, **options)


def _options(url: str) -> dict[str, Any]:
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:  # its message may quote the URL with the password
        raise ConfigError(
            "redis_url is not valid; expected redis://[[user]:password@]host:port/database, rediss://… or unix://…"
        ) from None
    options.pop("max_connections", None)  # `size` sets it
    # These override options of the URL: RESP2 needs no handshake, callers set time limits, and replies are bounded.
    ours = {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "health_check_interval": 0,
        "parser_class": BoundedParser,
    }
    return {**options, **ours}


async def ping_redis(url: str, timeout_s: float = 2.0) -> float:
    """Seconds that a Redis takes to reply."""
    link = Link(url, 1)
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s):
            await link.exchange([("PING",)])
    except (TimeoutError, RedisError, OSError) as error:
        reason = str(error) or f"no reply within {timeout_s:g} s"
        raise ConfigError(f"Redis does not respond: {reason}; start it, or remove --redis-url") from error
    finally:
        await link.close()
    return time.perf_counter() - started


# The Redis channel on which replicas notify each other that CURRENT has changed. A message, with any content, only
# makes its receivers check CURRENT, so an attacker with access to Redis can do no more. The channel is optional:
# without Redis, every replica notices the change within `poll_interval_s`.

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
    """Publishes and subscribes on one channel, in the event loop in which it was started."""

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
