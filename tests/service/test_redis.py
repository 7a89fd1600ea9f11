"""The cache in Redis: what workers share, what is never served, and what a Redis that fails costs a search."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
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
    FAILURES_TO_OPEN,
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
from tests.service.asking import Serve, watched
from tests.slow_peer import SlowPeer
from tests.until import until as until_sync

KEY = b"glow:1:page:abc"
TIMEOUT_S = 0.05
PATIENCE_MS = 5_000
"""Time for Redis in tests that are not about time."""
SLACK_S = 0.25
"""The machine that runs the tests may be busy."""


class RedisServer:
    """A redis-server of the test's own, on a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Starts it with options of its command line and waits until it accepts connections."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until_sync(lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0, 20)

    def client(self, **options: Any) -> Any:
        """A connection beside the cache's own, to look and to damage."""
        return redis.Redis(port=self.port, **options)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Ends it at once, without a farewell to its clients."""
        if self.process is not None:
            self.process.kill()  # also ends one that is stopped
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: what is shared through it was not tested")
    server = RedisServer(tmp_path)
    server.start()
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


def counts(metrics: Metrics) -> dict[str, int]:
    """Events of Redis that happened at all."""
    samples = [sample for family in metrics.cache_events.collect() for sample in family.samples]
    found = [sample for sample in samples if sample.labels["tier"] == "redis" and sample.value]
    return {sample.labels["event"]: int(sample.value) for sample in found if sample.name.endswith("_total")}


async def until(true: Callable[[], Any], within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


def maker(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make() -> bytes:
        return value

    return make


def value_of(key: bytes) -> bytes:
    return b"value of " + key


async def ask(cache: Cache, key: bytes = KEY) -> float:
    """Asks for a response, which must be the right one; returns the seconds that it took."""
    started = time.monotonic()
    assert await cache.response(key, maker(value_of(key))) == value_of(key)
    return time.monotonic() - started


def fill(server: RedisServer, *keys: bytes) -> None:
    for key in keys:
        server.client().set(key, seal(key, value_of(key)))


async def until_hit(cache: Cache, metrics: Metrics) -> None:
    hits = counts(metrics).get("hit", 0)
    async with asyncio.timeout(15):
        while counts(metrics).get("hit", 0) == hits:
            await ask(cache)
            await asyncio.sleep(0.01)


@watched
async def test_what_one_worker_made_another_finds(server: RedisServer) -> None:
    async with open_cache(server.url) as (one, written), open_cache(server.url) as (other, read):
        assert await one.response(KEY, maker(b"\0value\xff")) == b"\0value\xff"
        await until(lambda: counts(written).get("store"))
        found = await asyncio.gather(*(other.response(KEY, maker(b"never")) for _ in range(10)))
        assert found == [b"\0value\xff"] * 10  # and they look once
        assert counts(read) == {"hit": 1}
    assert 0 < server.client().ttl(KEY) <= 300


@watched
async def test_redis_behind_a_unix_socket_and_behind_tls(server: RedisServer) -> None:
    folder, tls_port = server.folder, free_port()
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    command = ["openssl", "req", "-x509", *key, "-out", "cert.pem", *subject]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    tls = ["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-auth-clients", "no"]
    server.kill()
    server.start("--unixsocket", str(folder / "redis.sock"), "--tls-port", str(tls_port), *tls)
    fill(server, KEY)
    certified = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={folder}/cert.pem"
    for url in (f"unix://{folder}/redis.sock", certified):
        async with open_cache(url) as (cache, metrics):
            await ask(cache)
            assert counts(metrics) == {"hit": 1}
    async with open_cache(f"rediss://127.0.0.1:{tls_port}") as (cache, metrics):
        await ask(cache)  # nobody vouches for its certificate
        assert counts(metrics)["error"] >= 1 and "hit" not in counts(metrics)


@watched
async def test_a_redis_that_closes_idle_connections_is_no_failure(server: RedisServer) -> None:
    client = server.client()
    keys = [b"%d" % number for number in range(8)]
    fill(server, *keys)
    async with open_cache(server.url) as (cache, metrics):
        for _ in range(5):
            await asyncio.gather(*(ask(cache, key) for key in keys))
            client.client_kill_filter(_type="normal", skipme=True)
        assert counts(metrics) == {"hit": 40}


def test_a_wrong_password_is_an_error_and_no_password_is_logged(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = server.client()
    client.execute_command("ACL", "SETUSER", "glow", "on", ">s3cret", "~glow:*", "+getrange", "+set")
    client.execute_command("ACL", "SETUSER", "default", "resetpass", ">0ther")

    async def test() -> None:
        async with open_cache(server.url.replace("://", "://glow:s3cret@")) as (cache, metrics):
            await ask(cache)  # two commands on our keys are enough
            await until(lambda: counts(metrics).get("store"))
            assert counts(metrics) == {"miss": 1, "store": 1}
        for url in (server.url, server.url.replace("://", "://glow:hunter2@")):
            async with open_cache(url) as (cache, metrics):
                for _ in range(10):
                    await ask(cache)
                await until(lambda metrics=metrics: sum(counts(metrics).values()) == 20)
                assert set(counts(metrics)) == {"error", "skipped"}

    watched(test)()
    assert any("redis reads fail" in record.message for record in caplog.records)
    assert not any(word in str(vars(record)) for record in caplog.records for word in ("hunter2", "s3cret"))


# A Redis that is slow, hangs, is killed or full.


@watched
async def test_a_redis_that_trickles_costs_no_more(server: RedisServer) -> None:
    fill(server, KEY)
    with SlowPeer(server.port) as peer:
        async with open_cache(f"redis://127.0.0.1:{peer.port}", 50) as (cache, metrics):
            await until_hit(cache, metrics)
            with peer.slow():
                for _ in range(50):
                    assert await ask(cache) < TIMEOUT_S + SLACK_S
            await until_hit(cache, metrics)


@watched
async def test_writes_to_a_hanging_redis_wait_in_bounds_and_are_dropped(server: RedisServer) -> None:
    async with open_cache(server.url, 50) as (cache, metrics):
        server.send(signal.SIGSTOP)
        large = b"x" * MAX_VALUE_BYTES
        for number in range(20):
            assert await cache.response(b"%d" % number, maker(large)) == large
        assert counts(metrics)["dropped"] == 20 - MAX_WAITING_BYTES // MAX_VALUE_BYTES
        started = time.monotonic()
    assert time.monotonic() - started < SLACK_S  # closing waits for nothing
    assert counts(metrics)["dropped"] == 20


@watched
async def test_a_full_redis_refuses_writes_and_still_reads(server: RedisServer) -> None:
    client = server.client()
    fill(server, KEY)
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    async with open_cache(server.url) as (cache, metrics):
        for number in range(20):
            await ask(cache, b"new-%d" % number)
            await ask(cache)
        await until(lambda: sum(counts(metrics).values()) == 60)
        assert counts(metrics)["hit"] == 20 and counts(metrics)["error"] >= FAILURES_TO_OPEN
        client.config_set("maxmemory", "0")
        async with asyncio.timeout(15):
            while "store" not in counts(metrics):
                await ask(cache, b"again")
                await asyncio.sleep(0.01)


@watched
async def test_cancelled_searches_cost_no_connection_for_good(server: RedisServer) -> None:
    client = server.client()
    fill(server, KEY)
    async with open_cache(server.url) as (cache, metrics):
        for steps in range(45):
            tasks = [asyncio.create_task(ask(cache, b"%d" % number)) for number in range(20)]
            for _ in range(steps % 15):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await ask(cache)
        assert not {"error", "timeout"} & set(counts(metrics))
        # 8 readers, two writers, and this one
        await until(lambda: client.info("clients")["connected_clients"] <= 11)


@watched
async def test_searches_go_on_while_redis_is_killed_stopped_poisoned_and_restarted(
    server: RedisServer,
) -> None:
    """16 callers at once: every response is right, and none is late."""
    async with open_cache(server.url, 50) as (cache, metrics):
        done, slowest = asyncio.Event(), 0.0

        async def search(number: int) -> None:
            nonlocal slowest
            while not done.is_set():
                number += 7
                value, started = b"value %d" % (number % 100), time.monotonic()
                assert await cache.response(b"key %d" % (number % 100), maker(value)) == value
                slowest = max(slowest, time.monotonic() - started)
                await asyncio.sleep(0.002)

        def poison() -> None:
            for number in range(100):
                server.client().set(b"key %d" % number, b"poison")

        async def next_event(event: str) -> None:
            before = counts(metrics).get(event, 0)
            await until(lambda: counts(metrics).get(event, 0) > before + 50)

        callers = [asyncio.create_task(search(caller)) for caller in range(16)]
        await next_event("hit")
        await asyncio.to_thread(poison)
        await until(lambda: counts(metrics).get("poisoned"))
        await asyncio.to_thread(server.kill)
        await next_event("skipped")
        await asyncio.to_thread(server.start)
        await next_event("hit")
        server.send(signal.SIGSTOP)
        await next_event("skipped")
        server.send(signal.SIGCONT)
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


@pytest.fixture
def http(server: RedisServer, serve: Serve) -> Iterator[httpx.Client]:
    """A service that keeps nothing but in the test's Redis."""
    with serve(cache_entries=0, redis_url=server.url, redis_timeout_ms=500) as client:
        yield client


def answers(http: httpx.Client) -> list[Any]:
    found = [http.post("/search", json={"query": query, "top_k": 5}) for query in QUERIES]
    assert [each.status_code for each in found] == [200] * len(QUERIES), found[0].text
    return [(each.json()["hits"], each.json()["degraded"]) for each in found]


def others(key: bytes, values: dict[bytes, bytes]) -> bytes:
    return next(values[each] for each in sorted(values) if each != key)


LIES: dict[str, Callable[[Any, bytes, dict[bytes, bytes]], Any]] = {
    "garbage": lambda redis, key, _: redis.set(key, b"garbage"),
    "zeros": lambda redis, key, _: redis.set(key, bytes(100)),
    "cut": lambda redis, key, values: redis.set(key, values[key][:-1]),
    "one bit": lambda redis, key, values: redis.set(key, values[key][:-1] + bytes([values[key][-1] ^ 1])),
    "another search's": lambda redis, key, values: redis.set(key, others(key, values)),
    # At once: a value that the service writes late may come between two commands.
    "a list": lambda redis, key, _: redis.pipeline().delete(key).rpush(key, "x").execute(),
    "too large": lambda redis, key, values: redis.set(key, values[key] + bytes(64 << 20)),
}


def test_no_lie_of_redis_is_served(server: RedisServer, http: httpx.Client) -> None:
    client = server.client()
    right = answers(http)
    until_sync(lambda: len(client.keys("glow:*")) == len(QUERIES))
    values = {key: client.get(key) for key in client.keys("glow:*")}
    for name, lie in LIES.items():
        for key in values:
            lie(client, key, values)
        assert answers(http) == right, name
        assert answers(http) == right, name  # what was written over it, too
    # A lie is no failure of Redis, which would be left alone after three of them.
    lines = http.get("/metrics").text.splitlines()
    events = [line for line in lines if 'tier="redis"' in line and float(line.split()[-1])]
    assert any('event="poisoned"' in line for line in events)
    assert not [line for line in events if 'event="error"' in line], events


def test_a_service_answers_and_is_ready_while_redis_hangs(server: RedisServer, http: httpx.Client) -> None:
    right = answers(http)
    server.send(signal.SIGSTOP)
    for _ in range(5):
        assert answers(http) == right
    assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://:hunter2@host",
        "redis://:hunter2@host:port",
        "redis://:hunter2@host?colour=red",
    ],
)
def test_a_url_that_is_no_redis_is_refused_without_saying_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="redis_url") as refused:
        redis_client(url, 1)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
