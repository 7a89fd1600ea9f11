"""The cache in Redis: what workers share, what is never served, and what a Redis that fails costs a search."""

import asyncio
import logging
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError
from glow_service.cache import Cache
from glow_service.redis import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_VALUE_BYTES,
    MAX_WAITING_BYTES,
    Breaker,
    redis_client,
    seal,
    unsealed,
)
from glow_service.telemetry.metrics import Metrics
from tests.ports import free_port
from tests.service.asking import Serve, counts, samples, watched
from tests.until import until as until_sync

KEY = b"glow:1:page:abc"
TIMEOUT_S = 0.05
PATIENCE_MS = 5_000
"""Time for Redis in tests that are not about time."""
SLACK_S = 0.25
"""The machine that runs the tests may be busy."""


class RedisServer:
    """A redis-server of the test's own, on a port that it keeps."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Starts it and waits until it accepts connections."""
        options = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        command = ["redis-server", "--port", str(self.port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until_sync(lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0, 20)

    def client(self) -> Any:
        """A connection beside the cache's own, to look and to damage."""
        return redis.Redis(port=self.port)

    def kill(self) -> None:
        """Ends it at once, without a farewell to its clients; also one that is stopped."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: what is shared through it was not tested")
    server = RedisServer()
    yield server
    server.kill()


@asynccontextmanager
async def open_cache(url: str, timeout_ms: int = PATIENCE_MS) -> AsyncIterator[tuple[Cache, Metrics]]:
    """A cache with Redis alone, so that every call reaches it."""
    metrics = Metrics()
    cache = Cache(metrics, entries=0, redis_url=url, redis_timeout_ms=timeout_ms)
    try:
        yield cache, metrics
    finally:
        async with asyncio.timeout(5):
            await cache.close()


async def until(true: Callable[[], Any], within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


def maker(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make() -> bytes:
        return value

    return make


async def ask(cache: Cache, key: bytes = KEY) -> None:
    """Asks for a response, which must be the right one."""
    assert await cache.response(key, maker(b"value of " + key)) == b"value of " + key


@watched
async def test_what_one_worker_made_another_finds(server: RedisServer) -> None:
    async with open_cache(server.url) as (one, written), open_cache(server.url) as (other, read):
        assert await one.response(KEY, maker(b"\0value\xff")) == b"\0value\xff"
        await until(lambda: counts(written, "redis").get("store"))
        found = await asyncio.gather(*(other.response(KEY, maker(b"never")) for _ in range(10)))
        assert found == [b"\0value\xff"] * 10  # and they look once
        assert counts(read, "redis") == {"hit": 1}
    assert 0 < server.client().ttl(KEY) <= 300


@watched
async def test_a_redis_that_closes_idle_connections_is_no_failure(server: RedisServer) -> None:
    client = server.client()
    keys = [b"%d" % number for number in range(8)]
    for key in keys:
        client.set(key, seal(key, b"value of " + key))
    async with open_cache(server.url) as (cache, metrics):
        for _ in range(5):
            await asyncio.gather(*(ask(cache, key) for key in keys))
            client.client_kill_filter(_type="normal", skipme=True)
        assert counts(metrics, "redis") == {"hit": 40}


def test_a_wrong_password_is_an_error_and_no_password_is_logged(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    acl = server.client().acl_setuser
    acl("glow", enabled=True, passwords=["+s3cret"], keys=["glow:*"], commands=["+getrange", "+set"])
    acl("reader", enabled=True, passwords=["+s3cret"], keys=["glow:*"], commands=["+getrange"])
    acl("default", enabled=True, reset_passwords=True, passwords=["+0ther"])
    reads, fails = {"miss", "store"}, {"error", "skipped"}
    # Two commands on our keys are enough; writes that fail, as those to a full Redis, stop no reads.
    wanted = {"glow:s3cret@": reads, "reader:s3cret@": {"miss", *fails}, "": fails, "glow:hunter2@": fails}

    async def test() -> None:
        for user, events in wanted.items():
            async with open_cache(server.url.replace("://", f"://{user}")) as (cache, metrics):
                for number in range(10):
                    await ask(cache, b"glow:%b:%d" % (user.encode(), number))
                await until(lambda metrics=metrics: sum(counts(metrics, "redis").values()) == 20)
                assert set(counts(metrics, "redis")) == events
                assert counts(metrics, "redis").get("miss", 0) == 10 * ("miss" in events)

    watched(test)()
    assert any("redis reads fail" in record.message for record in caplog.records)
    assert not any(word in str(vars(record)) for record in caplog.records for word in ("hunter2", "s3cret"))


# A Redis that hangs or is killed.


@watched
async def test_writes_to_a_hanging_redis_wait_in_bounds_and_are_dropped(server: RedisServer) -> None:
    async with open_cache(server.url, 50) as (cache, metrics):
        server.process.send_signal(signal.SIGSTOP)
        large = b"x" * MAX_VALUE_BYTES
        for number in range(20):
            assert await cache.response(b"%d" % number, maker(large)) == large
        assert counts(metrics, "redis")["dropped"] == 20 - MAX_WAITING_BYTES // MAX_VALUE_BYTES
        started = time.monotonic()
    assert time.monotonic() - started < SLACK_S  # closing waits for nothing
    assert counts(metrics, "redis")["dropped"] == 20


@watched
async def test_cancelled_searches_cost_no_connection_for_good(server: RedisServer) -> None:
    async with open_cache(server.url) as (cache, metrics):
        for steps in range(15):
            tasks = [asyncio.create_task(ask(cache, b"%d" % number)) for number in range(20)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await ask(cache)
        assert not {"error", "timeout"} & set(counts(metrics, "redis"))
        # 8 readers, two writers, and this one
        await until(lambda: server.client().info("clients")["connected_clients"] <= 11)


@watched
async def test_searches_go_on_while_redis_is_killed_restarted_and_stopped(server: RedisServer) -> None:
    """16 callers at once: every response is right, and none is late."""
    async with open_cache(server.url, 50) as (cache, metrics):
        done, slowest = asyncio.Event(), 0.0

        async def search(number: int) -> None:
            nonlocal slowest
            while not done.is_set():
                number, started = (number + 7) % 100, time.monotonic()
                await ask(cache, b"%d" % number)
                slowest = max(slowest, time.monotonic() - started)
                await asyncio.sleep(0.002)

        async def next_event(event: str) -> None:
            before = counts(metrics, "redis").get(event, 0)
            await until(lambda: counts(metrics, "redis").get(event, 0) > before + 50)

        callers = [asyncio.create_task(search(caller)) for caller in range(16)]
        await next_event("hit")
        await asyncio.to_thread(server.kill)
        await next_event("skipped")
        await asyncio.to_thread(server.start)
        await next_event("hit")
        server.process.send_signal(signal.SIGSTOP)
        await next_event("skipped")
        server.process.send_signal(signal.SIGCONT)
        await next_event("hit")
        done.set()
        await asyncio.gather(*callers)
        assert slowest < TIMEOUT_S + SLACK_S


def test_pauses_grow_to_a_bound_and_one_call_tries_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("glow_service.redis.time", SimpleNamespace(monotonic=lambda: now))
    breaker = Breaker("reads")
    for _ in range(20):  # failures that are not in a row
        breaker.failed(OSError())
        breaker.failed(OSError())
        breaker.succeeded()
    assert breaker.allows()
    for _ in range(50):  # only the first three count: the others were on their way
        breaker.failed(OSError())
    assert not breaker.allows()
    now += FIRST_PAUSE_S
    for _ in range(8):
        assert breaker.allows() and not breaker.allows()
        breaker.failed(OSError())
        now += LONGEST_PAUSE_S
    now -= LONGEST_PAUSE_S / 2 + 0.01
    assert not breaker.allows()
    now += LONGEST_PAUSE_S
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.allows() and breaker.allows()


# Values that are damaged or of others, and a service over a Redis that lies.


@given(st.binary(max_size=40), st.binary(max_size=200), st.data())
def test_a_sealed_value_is_found_whole_under_its_key_alone(
    key: bytes, value: bytes, data: st.DataObject
) -> None:
    sealed = seal(key, value)
    assert unsealed(key, sealed) == value
    damaged = bytearray(sealed)
    damaged[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for wrong in (bytes(damaged), sealed[:-1], sealed + b"x", value, sealed[:17] + b"x" + value):
        assert unsealed(key, wrong) is None
    assert unsealed(key + b"x", sealed) is None


QUERIES = ("how do bees find home", "owls at night", "coffee beans")


def answers(client: httpx.Client) -> list[Any]:
    found = [client.post("/search", json={"query": query, "top_k": 5}) for query in QUERIES]
    assert [each.status_code for each in found] == [200] * len(QUERIES), found[0].text
    return [(each.json()["hits"], each.json()["degraded"]) for each in found]


LIES: dict[str, Callable[[Any, bytes, dict[bytes, bytes]], Any]] = {
    "cut": lambda redis, key, values: redis.set(key, values[key][:-1]),
    "one bit": lambda redis, key, values: redis.set(key, values[key][:-1] + bytes([values[key][-1] ^ 1])),
    "another search's": lambda redis, key, values: redis.set(key, values[min({*values} - {key})]),
    # At once: a value that the service writes late may come between two commands.
    "a list": lambda redis, key, _: redis.pipeline().delete(key).rpush(key, "x").execute(),
    "too large": lambda redis, key, values: redis.set(key, values[key] + bytes(2 * MAX_VALUE_BYTES)),
}


def test_no_lie_of_redis_is_served_and_nobody_waits_for_one_that_hangs(
    server: RedisServer, serve: Serve
) -> None:
    client = server.client()
    with serve(cache_entries=0, redis_url=server.url, redis_timeout_ms=500) as http:
        right = answers(http)
        until_sync(lambda: len(client.keys("glow:*")) == len(QUERIES))
        values = {key: client.get(key) for key in client.keys("glow:*")}
        for name, lie in LIES.items():
            for key in values:
                lie(client, key, values)
            assert answers(http) == right, name
            assert answers(http) == right, name  # what was written over it, too
        # A lie is no failure of Redis, which would be left alone after three of them.
        events = [name for name, value in samples(http).items() if 'tier="redis"' in name and value]
        assert any('event="poisoned"' in name for name in events)
        assert not [name for name in events if 'event="error"' in name], events
        server.process.send_signal(signal.SIGSTOP)
        assert answers(http) == right
        assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize("url", ["unix:///redis.sock", "rediss://:pass@host:1/0?ssl_ca_certs=cert.pem"])
def test_sockets_and_tls_take_the_options_of_our_connections(url: str) -> None:
    assert redis_client(url, 1)


@pytest.mark.parametrize(
    "url",
    ["localhost:6379", "http://:hunter2@host", "redis://:hunter2@host:port", "redis://:hunter2@host?a=b"],
)
def test_a_url_that_is_no_redis_is_refused_without_saying_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="redis_url") as refused:
        redis_client(url, 1)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
