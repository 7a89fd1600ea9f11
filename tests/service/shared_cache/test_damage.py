"""Values that are poison, of another type or too large, a full redis-server, and one that lies."""

import asyncio
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from glow_service.redis.cache import FAILURES_TO_OPEN, MAX_VALUE_BYTES, seal
from tests.service.asking import Serve, watched
from tests.service.shared_cache.harness import KEY, PATIENCE_MS, RedisServer, counts, open_cache, until
from tests.slow_peer import SlowPeer


@watched
async def test_values_too_large_are_not_sent(server: RedisServer) -> None:
    async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        cache.put("response", KEY, bytes(MAX_VALUE_BYTES + 1))
        cache.put("response", b"largest", bytes(MAX_VALUE_BYTES))
        await until(lambda: counts(metrics).get("store"))
        assert counts(metrics) == {"store": 1, "skipped": 1}
        assert await cache.get("response", b"largest") == bytes(MAX_VALUE_BYTES)


@watched
async def test_of_a_huge_value_no_more_is_read_than_ours_can_have(server: RedisServer) -> None:
    server.client().setrange(KEY, 64 << 20, b"x")
    async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        tracemalloc.start()
        try:
            assert await cache.get("response", KEY) is None
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 16 * MAX_VALUE_BYTES
        assert counts(metrics) == {"poisoned": 1}


@watched
async def test_a_full_redis_refuses_writes_and_still_reads(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        for number in range(20):
            cache.put("response", b"new-%d" % number, b"value")
            await asyncio.sleep(0.02)
            assert await cache.get("response", KEY) == b"value"
        await until(lambda: sum(counts(metrics).values()) == 40)
        found = counts(metrics)
        assert found["hit"] == 20 and found["error"] >= FAILURES_TO_OPEN
        assert found["skipped"] > 0  # it is not sent what it would refuse
        assert found["error"] + found["skipped"] == 20
        client.config_set("maxmemory", "0")

        def is_taken_again() -> bool:
            cache.put("response", b"again", b"value")
            return "store" in counts(metrics)

        await until(is_taken_again)


# A service over a Redis that lies: each search has the answer that it has without Redis, and none is a 500.

QUERIES = ("how do bees find home", "owls at night", "coffee beans")


@pytest.fixture
def http(server: RedisServer, serve: Serve) -> Iterator[httpx.Client]:
    """A service that keeps nothing but in the test's Redis."""
    with serve(cache_entries=0, redis_url=server.url, redis_timeout_ms=500) as client:
        yield client


def answers(http: httpx.Client) -> list[Any]:
    found = [http.post("/search", json={"query": query, "top_k": 5}) for query in QUERIES]
    assert [each.status_code for each in found] == [200] * len(QUERIES), found[0].text
    return [(each.json()["hits"], each.json()["degraded"]) for each in found]


def kept(redis: Any) -> dict[bytes, bytes]:
    """Keys and values, once all searches' values are there."""
    until = time.monotonic() + 10
    while len(keys := redis.keys("glow:*")) < 2 * len(QUERIES):
        assert time.monotonic() < until
        time.sleep(0.01)
    return {key: redis.get(key) for key in keys}


Lie = Callable[[Any, bytes, dict[bytes, bytes]], Any]


def _others(key: bytes, values: dict[bytes, bytes]) -> bytes:
    """The value of another key of the same kind."""
    return next(values[each] for each in sorted(values) if each != key and each[:12] == key[:12])


def _sealed(make: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Lie:
    """A vector with a digest that is right: by somebody who knows the layout."""

    def lie(redis: Any, key: bytes, values: dict[bytes, bytes]) -> None:
        if b":vector:" in key:
            vector = make(np.frombuffer(values[key][20:], np.float32).copy())
            redis.set(key, seal(key, vector.astype(np.float32).tobytes()))
        else:
            redis.delete(key)

    return lie


LIES: dict[str, Lie] = {
    "garbage": lambda redis, key, _: redis.set(key, b"garbage"),
    "empty envelope": lambda redis, key, _: redis.set(key, b"GLW\x01"),
    "zeros": lambda redis, key, _: redis.set(key, bytes(100)),
    "cut": lambda redis, key, values: redis.set(key, values[key][:-1]),
    "one bit": lambda redis, key, values: redis.set(key, values[key][:-1] + bytes([values[key][-1] ^ 1])),
    "another search's": lambda redis, key, values: redis.set(key, _others(key, values)),
    "a number": lambda redis, key, _: redis.set(key, 7),
    # At once: a value that the service writes late may come between two commands.
    "a list": lambda redis, key, _: redis.pipeline().delete(key).rpush(key, "x").execute(),
    "a hash": lambda redis, key, _: redis.pipeline().delete(key).hset(key, "x", "y").execute(),
    "too large": lambda redis, key, values: redis.set(key, values[key] + bytes(MAX_VALUE_BYTES)),
    "sealed, no numbers": _sealed(lambda vector: vector * np.nan),
    "sealed, without bound": _sealed(lambda vector: vector / 0.0),
    "sealed, nothing": _sealed(lambda vector: vector * 0),
    "sealed, not normalised": _sealed(lambda vector: vector * 3),
    "sealed, another model's": _sealed(lambda vector: vector[:-1]),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_no_lie_of_redis_is_served(server: RedisServer, http: httpx.Client) -> None:
    redis = server.client()
    right = answers(http)
    values = kept(redis)
    for name, lie in LIES.items():
        for key in values:
            lie(redis, key, values)
        assert answers(http) == right, name
        assert answers(http) == right, name  # what was written over it, too
    # A lie is no failure of Redis, which would be left alone after three of them.
    lines = http.get("/metrics").text.splitlines()
    events = [line for line in lines if 'tier="redis"' in line and float(line.split()[-1])]
    assert any('event="poisoned"' in line for line in events)
    assert not [line for line in events if 'event="error"' in line], events


def test_a_value_of_another_index_is_never_asked_for(
    server: RedisServer, http: httpx.Client, serve: Serve, build_index: Any
) -> None:
    redis = server.client()
    answers(http)
    values = kept(redis)
    other = build_index([{"_id": "z", "title": "zebras", "text": "How do zebras find home at night?"}])
    settings = {"cache_entries": 0, "redis_url": server.url, "redis_timeout_ms": 500}
    with serve(other, **settings) as client:
        assert [[hit["id"] for hit in hits] for hits, _ in answers(client)] == [["z"]] * len(QUERIES)
        pages: set[bytes] = set()
        until = time.monotonic() + 10
        while len(pages) < len(QUERIES):
            assert time.monotonic() < until
            pages = {key for key in redis.keys("glow:*:page:*") if key not in values}
        for key in pages:
            redis.set(key, _others(key, values))
        assert [[hit["id"] for hit in hits] for hits, _ in answers(client)] == [["z"]] * len(QUERIES)


def test_a_redis_that_trickles_is_no_ones_business(server: RedisServer, serve: Serve) -> None:
    """Searches answer whole, `/readyz` is 200, and the next search after it is right."""
    with SlowPeer(server.port) as peer:
        with serve(cache_entries=0, redis_url=f"redis://127.0.0.1:{peer.port}") as client:
            right = answers(client)
            with peer.slow():
                started = time.monotonic()
                for _ in range(5):
                    assert answers(client) == right
                assert client.get("/readyz").status_code == 200
                assert time.monotonic() - started < 5
            assert answers(client) == right
