"""Values that are poison, of another type or too large, and a redis-server that is full."""

import asyncio
import tracemalloc

import pytest

from glow_service.redis.breaker import FAILURES_TO_OPEN
from glow_service.redis.envelope import seal
from glow_service.redis.redis_cache import MAX_VALUE_BYTES
from tests.service.shared_cache.harness import KEY, PATIENCE_MS, RedisServer, counts, open_cache, run, until


def test_values_too_large_are_not_sent(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            cache.put("response", KEY, bytes(MAX_VALUE_BYTES + 1))
            cache.put("response", b"largest", bytes(MAX_VALUE_BYTES))
            await until(lambda: counts(metrics).get("store"))
            assert counts(metrics) == {"store": 1, "skipped": 1}
            assert await cache.get("response", b"largest") == bytes(MAX_VALUE_BYTES)

    run(test())


POISON = {
    "garbage": b"garbage",
    "empty envelope": b"GLW\x01",
    "zeros": bytes(100),
    "another key's": seal(b"another", b"value"),
    "truncated": seal(KEY, b"value")[:-1],
    "one bit": seal(KEY, b"value")[:-1] + b"d",
    "too large": bytes(MAX_VALUE_BYTES * 4),
}


@pytest.mark.parametrize("name", POISON)
def test_a_poisoned_value_is_a_miss_that_is_counted_and_written_over(server: RedisServer, name: str) -> None:
    server.client().set(KEY, POISON[name])

    async def value() -> bytes:
        return b"value"

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            assert await cache.get_or_make("response", KEY, value) == (b"value", False)
            assert counts(metrics) == {"poisoned": 1}
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("response", KEY) == b"value"

    run(test())


def test_of_a_huge_value_no_more_is_read_than_ours_can_have(server: RedisServer) -> None:
    server.client().setrange(KEY, 64 << 20, b"x")

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            tracemalloc.start()
            try:
                assert await cache.get("response", KEY) is None
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert most < 16 * MAX_VALUE_BYTES
            assert counts(metrics) == {"poisoned": 1}

    run(test())


@pytest.mark.parametrize("kind", ["list", "hash"])
def test_a_key_of_another_type_is_poison_and_no_failure(server: RedisServer, kind: str) -> None:
    client = server.client()

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            _ = client.lpush(KEY, "x") if kind == "list" else client.hset(KEY, "x", "y")
            for _ in range(2 * FAILURES_TO_OPEN):
                assert await cache.get("response", KEY) is None
            assert counts(metrics) == {"poisoned": 2 * FAILURES_TO_OPEN}
            cache.put("response", KEY, b"value")
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("response", KEY) == b"value"

    run(test())


def test_a_full_redis_refuses_writes_and_still_reads(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            for number in range(20):
                cache.put("response", b"new-%d" % number, b"value")
                await asyncio.sleep(0.02)
                assert await cache.get("response", KEY) == b"value"
            await until(lambda: sum(counts(metrics).values()) == 40)
            found = counts(metrics)
            assert found["hit"] == 20
            assert found["error"] >= FAILURES_TO_OPEN
            assert found["skipped"] > 0  # it is not sent what it would refuse
            assert found["error"] + found["skipped"] == 20
            client.config_set("maxmemory", "0")

            def is_taken_again() -> bool:
                cache.put("response", b"again", b"value")
                return "store" in counts(metrics)

            await until(is_taken_again)

    run(test())
