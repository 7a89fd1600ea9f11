"""Writes that wait, a cache that closes, and searches that go on while Redis is killed, stopped and poisoned."""

import asyncio
import signal
import time

from glow_service.redis.breaker import FAILURES_TO_OPEN
from glow_service.redis.redis_cache import MAX_VALUE_BYTES
from glow_service.redis.writer import MAX_WAITING
from tests.service.shared_cache.harness import (
    KEY,
    SLACK_S,
    TIMEOUT_S,
    RedisServer,
    counts,
    open_cache,
    run,
    until,
)


def test_writes_to_a_hanging_redis_are_dropped_when_too_many_wait_and_never_wait_themselves(
    server: RedisServer,
) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            server.send(signal.SIGSTOP)
            started = time.monotonic()
            for number in range(2 * MAX_WAITING):
                cache.put("response", b"%d" % number, b"value")
            assert time.monotonic() - started < SLACK_S
            assert counts(metrics) == {"dropped": MAX_WAITING}
            await until(lambda: counts(metrics).get("skipped"))  # it failed, and the rest was let go
            assert counts(metrics)["timeout"] >= FAILURES_TO_OPEN
            cache.put("response", KEY, b"value")
        assert sum(counts(metrics).values()) == 2 * MAX_WAITING + 1

    run(test())


def test_bytes_bound_the_values_that_wait(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            server.send(signal.SIGSTOP)
            for number in range(20):
                cache.put("response", b"%d" % number, bytes(MAX_VALUE_BYTES))
            assert counts(metrics) == {"dropped": 12}

    run(test())


def test_closing_is_quick_and_whatever_comes_after_it_passes(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            await cache.get("response", KEY)
            server.send(signal.SIGSTOP)
            for number in range(400):
                cache.put("response", b"%d" % number, b"value")
            await asyncio.sleep(0.05)
            started = time.monotonic()
            await cache.close()
            assert time.monotonic() - started < SLACK_S
            assert counts(metrics) == {"miss": 1, "dropped": 400}
            cache.put("response", KEY, b"value")
            assert await cache.get("response", KEY) is None
            assert counts(metrics)["skipped"] == 2

    run(test())


def test_searches_go_on_while_redis_is_killed_stopped_poisoned_and_restarted(server: RedisServer) -> None:
    """Some seconds of 16 callers; every answer is right, and none is late."""

    async def test() -> None:
        async with open_cache(server.url, entries=5) as (cache, metrics):
            done = asyncio.Event()
            slowest = 0.0
            answers = 0

            async def search(caller: int) -> None:
                nonlocal slowest, answers
                number = caller
                while not done.is_set():
                    number += 7
                    value = b"value %d" % (number % 100)

                    async def make(value: bytes = value) -> bytes:
                        await asyncio.sleep(0.001)
                        return value

                    started = time.monotonic()
                    found, _ = await cache.get_or_make("response", b"key %d" % (number % 100), make)
                    slowest = max(slowest, time.monotonic() - started)
                    assert found == value
                    answers += 1
                    await asyncio.sleep(0.002)

            callers = [asyncio.create_task(search(caller)) for caller in range(16)]
            await _disturb(server)
            done.set()
            await asyncio.gather(*callers)
            assert slowest < TIMEOUT_S + SLACK_S
            assert answers > 500
            found = counts(metrics)
            assert {"hit", "miss", "store", "error", "skipped", "poisoned"} <= set(found)

    run(test())


def _poison(server: RedisServer) -> None:
    client = server.client()
    for number in range(100):
        client.set(b"key %d" % number, b"poison")


async def _disturb(server: RedisServer) -> None:
    await asyncio.sleep(0.3)
    await asyncio.to_thread(_poison, server)  # here it would hold up the callers, and they are timed
    await asyncio.sleep(0.3)
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(0.3)
    await asyncio.to_thread(server.start)
    await asyncio.sleep(0.8)
    server.send(signal.SIGSTOP)
    await asyncio.sleep(TIMEOUT_S + SLACK_S + 0.3)  # a caller without a bound would wait for so long
    server.send(signal.SIGCONT)
    await asyncio.sleep(0.5)
