"""Connections to Redis with limited replies."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from glow.errors import ConfigError

MAX_REPLY_BYTES = (1 << 20) + 64
"""The largest value with its envelope; other replies are shorter."""
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
