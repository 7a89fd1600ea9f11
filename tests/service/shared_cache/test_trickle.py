"""A redis-server behind a network that trickles, and peers whose replies are too long: a budget is a budget."""

import asyncio
import sys
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from glow_service.redis.breaker import FAILURES_TO_OPEN
from glow_service.redis.channel import Channel
from glow_service.redis.envelope import seal
from glow_service.redis.redis_cache import MAX_VALUE_BYTES
from tests.service.shared_cache.harness import (
    KEY,
    SLACK_S,
    TIMEOUT_S,
    RedisServer,
    counts,
    open_cache,
    run,
    timed_get,
    until,
    until_found,
)
from tests.slow_peer import SlowPeer


@pytest.fixture
def peer(server: RedisServer) -> Iterator[SlowPeer]:
    with SlowPeer(server.port) as peer:
        yield peer


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_redis_that_trickles_costs_a_few_budgets_and_is_used_again_at_once(
    server: RedisServer, peer: SlowPeer, mode: Literal["trickle", "hang"]
) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(f"redis://127.0.0.1:{peer.port}") as (cache, metrics):
            await until_found(cache, b"value")
            with peer.slow(mode):
                started = time.monotonic()
                for number in range(100):
                    value, seconds = await timed_get(cache)
                    assert value is None and seconds < TIMEOUT_S + SLACK_S
                    cache.put("response", b"other-%d" % number, b"value")
                assert time.monotonic() - started < TIMEOUT_S * FAILURES_TO_OPEN + 2 * SLACK_S
                assert counts(metrics)["timeout"] >= FAILURES_TO_OPEN
            await until_found(cache, b"value", within_s=4.0)
            # What trickles would be there for much longer: one connection of a probe, one of the writer.
            await until(lambda: peer.connections <= 2, 3.0)

    run(test())


def _saying(reply: bytes) -> Any:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1 << 16):
                writer.write(reply)
                for _ in range(64):  # 64 MiB
                    writer.write(bytes(1 << 20))
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    return talk


@pytest.mark.parametrize(
    "reply",
    [
        b"$500000000\r\n",
        b"*500000000\r\n" + b":1\r\n" * 100_000,
        b"*1\r\n" * 5_000,
        b"$-7\r\n",
        b"$x\r\n",
        b"+" + b"x" * 200_000,
    ],
)
def test_a_reply_that_is_too_long_or_none_is_an_error_and_takes_no_memory(reply: bytes) -> None:
    async def test() -> None:
        listener = await asyncio.start_server(_saying(reply), "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with open_cache(url, redis_timeout_ms=1_000) as (cache, metrics):
            tracemalloc.start()
            started = time.monotonic()
            try:
                assert await cache.get("response", KEY) is None
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert time.monotonic() - started < 0.9  # said at once, not when the time is over
            assert most < 8 * MAX_VALUE_BYTES
            assert counts(metrics) == {"error": 1}
        listener.close()
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    run(test())


def test_a_huge_message_on_the_channel_is_not_read(server: RedisServer) -> None:
    client = server.client()
    looks: list[float] = []

    async def test() -> None:
        channel = Channel(server.url, "glow:index:x", lambda: looks.append(time.monotonic()))
        channel.start()
        await until(lambda: client.pubsub_numsub("glow:index:x")[0][1] == 1)
        seen, publish = (
            len(looks),
            f"import redis; redis.Redis(port={server.port}).publish('glow:index:x', bytes(24 << 20))",
        )
        tracemalloc.start()
        try:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", publish)
            await process.wait()
            await until(lambda: len(looks) > seen)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 4 * MAX_VALUE_BYTES
        await until(lambda: client.pubsub_numsub("glow:index:x")[0][1] == 1)  # it listens again
        await channel.close()

    run(test())
