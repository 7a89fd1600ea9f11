"""A service over a Redis that lies: each search has the answer that it has without Redis, and none is a 500."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from glow_service.app import create_app
from glow_service.redis.envelope import seal
from glow_service.redis.redis_cache import MAX_VALUE_BYTES
from glow_service.settings import Settings
from tests.service.shared_cache.harness import RedisServer
from tests.slow_peer import SlowPeer

QUERIES = ("how do bees find home", "owls at night", "coffee beans")


@pytest.fixture
def http(server: RedisServer, toy_index: Path, serve_app: Any) -> Iterator[httpx.Client]:
    """A service that keeps nothing but in the test's Redis."""
    settings = Settings(
        index_root=toy_index,
        cache_entries=0,
        redis_url=server.url,
        redis_timeout_ms=500,
        default_timeout_ms=30_000,
        warmup_queries=0,
    )
    with serve_app(create_app(settings, on_failure=lambda: None)) as client:
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


def test_a_value_of_another_index_is_never_asked_for(
    server: RedisServer, http: httpx.Client, serve_app: Any, build_index: Any
) -> None:
    redis = server.client()
    answers(http)
    values = kept(redis)
    other = build_index([{"_id": "z", "title": "zebras", "text": "How do zebras find home at night?"}])
    settings = Settings(
        index_root=other, cache_entries=0, redis_url=server.url, redis_timeout_ms=500, warmup_queries=0
    )
    with serve_app(create_app(settings, on_failure=lambda: None)) as client:
        assert [[hit["id"] for hit in hits] for hits, _ in answers(client)] == [["z"]] * len(QUERIES)
        pages: set[bytes] = set()
        until = time.monotonic() + 10
        while len(pages) < len(QUERIES):
            assert time.monotonic() < until
            pages = {key for key in redis.keys("glow:*:page:*") if key not in values}
        for key in pages:
            redis.set(key, _others(key, values))
        assert [[hit["id"] for hit in hits] for hits, _ in answers(client)] == [["z"]] * len(QUERIES)


def test_a_redis_that_trickles_is_no_ones_business(
    server: RedisServer, toy_index: Path, serve_app: Any
) -> None:
    """Searches answer whole, `/readyz` is 200, and the next search after it is right."""
    with SlowPeer(server.port) as peer:
        settings = Settings(
            index_root=toy_index,
            cache_entries=0,
            redis_url=f"redis://127.0.0.1:{peer.port}",
            default_timeout_ms=30_000,
            warmup_queries=0,
        )
        with serve_app(create_app(settings, on_failure=lambda: None)) as client:
            right = answers(client)
            with peer.slow():
                started = time.monotonic()
                for _ in range(5):
                    assert answers(client) == right
                assert client.get("/readyz").status_code == 200
                assert time.monotonic() - started < 5
            assert answers(client) == right
