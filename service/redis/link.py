"""A limited number of connections to Redis, each for one caller at a time; failed ones are closed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from glow.errors import ConfigError
from glow_service.redis.parser import BoundedParser

__all__ = ["Command", "Link", "check_redis_url", "connector", "discard", "ping_redis"]

Command = tuple[bytes | str | int, ...]


class Link:
    """Sends commands to Redis and reads the replies.

    It has no time limit: callers use `asyncio.timeout`. A canceled call closes its connection, so that a late reply
    is not read as the reply to the next command.

    Args:
        url: `redis://`, `rediss://` or `unix://`, with user, password and database if needed.
        size: most connections, >= 1; other callers wait.

    Raises:
        ConfigError: if the URL is not valid.
    """

    def __init__(self, url: str, size: int) -> None:
        self._connect = connector(url)
        self._free: list[Any] = []
        self._turns = asyncio.Semaphore(size)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands together and returns their replies; an error reply is returned as a `ResponseError`.

        Raises:
            RedisError, OSError: if the connection failed or broke.
        """
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
    """Checks a URL without connecting; "" is valid.

    Raises:
        ConfigError: if it is invalid; the message does not quote it.
    """
    if url:
        connector(url)


def connector(url: str) -> Callable[[], Any]:
    """A function that makes an unconnected connection.

    Raises:
        ConfigError: if the URL is not valid.
    """
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
    """Seconds that a Redis takes to reply.

    Raises:
        ConfigError: if the URL is invalid, or there is no reply in time.
    """
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
