"""The cache against a real redis-server: healthy, poisoned, full, slow, hanging, killed, restarted under load."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from service.cache import Cache
from service.cache.breaker import FAILURES_TO_OPEN
from service.cache.envelope import seal
from service.cache.shared import MAX_VALUE_BYTES
from service.cache.writer import MAX_WAITING
from service.metrics import Metrics
from service.settings import Settings
from tests.ports import free_port

KEY = b"glow:1:page:abc"
TIMEOUT_S = 0.05
# The machine that runs the tests may be busy.
SLACK_S = 0.25


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
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.01)
        raise AssertionError("redis-server did not start")

    def client(self, **options: Any) -> Any:
        """A connection beside the cache's own, to look and to damage."""
        return redis.Redis(port=self.port, **options)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP."""
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
        pytest.skip("redis-server is not installed: the shared cache was not tested")
    running = RedisServer(tmp_path)
    running.start()
    yield running
    running.kill()


def counts(metrics: Metrics, kind: str = "page") -> dict[str, int]:
    """Events of Redis that happened at all."""
    samples = [sample for family in metrics.cache_events.collect() for sample in family.samples]
    labels = {"tier": "redis", "kind": kind}
    found = [sample for sample in samples if labels.items() <= sample.labels.items() and sample.value]
    return {sample.labels["event"]: int(sample.value) for sample in found}


@asynccontextmanager
async def open_cache(url: str, **settings: Any) -> AsyncIterator[tuple[Cache, Metrics]]:
    """A cache with Redis alone, so that every call reaches it."""
    values = {"cache_entries": 0, "redis_timeout_ms": round(TIMEOUT_S * 1_000), **settings}
    metrics = Metrics()
    cache = Cache(Settings(index_root=Path("unused"), redis_url=url, **values), metrics)
    try:
        yield cache, metrics
    finally:
        async with asyncio.timeout(5):
            await cache.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a test's coroutine; it may not hang, nor leave a task, nor an error that nobody looked at."""
    unseen: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(60):
            await work
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())
    assert not unseen


async def until(true: Any, within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def timed_get(cache: Cache, key: bytes = KEY) -> tuple[bytes | None, float]:
    started = time.monotonic()
    value = await cache.get("page", key)
    return value, time.monotonic() - started


def test_what_one_worker_puts_another_finds(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (one, written), open_cache(server.url) as (other, read):
            one.put("page", KEY, b"\0value\xff")
            one.put("vector", KEY.replace(b"page", b"vector"), b"")
            await until(lambda: counts(written).get("store") == counts(written, "vector").get("store") == 1)
            assert await other.get("page", KEY) == b"\0value\xff"
            assert await other.get("vector", KEY.replace(b"page", b"vector")) == b""
            assert await other.get("page", b"glow:1:page:other") is None
            assert counts(read) == {"hit": 1, "miss": 1}
        assert 0 < server.client().ttl(KEY) <= 300

    run(test())


def test_redis_behind_a_unix_socket_and_behind_tls(server: RedisServer) -> None:
    folder = server.folder
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    command = ["openssl", "req", "-x509", *key, "-out", "cert.pem", *subject]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    tls = ["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-auth-clients", "no"]
    tls_port = free_port()
    server.kill()
    server.start("--unixsocket", str(folder / "redis.sock"), "--tls-port", str(tls_port), *tls)
    server.client().set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        certified = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={folder}/cert.pem"
        for url in (f"unix://{folder}/redis.sock", certified):
            async with open_cache(url, redis_timeout_ms=2_000) as (cache, _):
                assert await cache.get("page", KEY) == b"value"
        async with open_cache(f"rediss://127.0.0.1:{tls_port}", redis_timeout_ms=2_000) as (cache, metrics):
            assert await cache.get("page", KEY) is None  # nobody vouches for its certificate
            assert counts(metrics) == {"error": 1}

    run(test())


def test_a_redis_hit_is_local_the_next_time(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url, cache_entries=10) as (cache, metrics):
            for _ in range(3):
                assert await cache.get("page", KEY) == b"value"
            assert counts(metrics) == {"hit": 1}

    run(test())


def test_what_redis_has_is_not_made(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def never() -> bytes:
        raise AssertionError("made although Redis has it")

    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            found = await asyncio.gather(*(cache.get_or_make("page", KEY, never) for _ in range(10)))
            assert found == [(b"value", True)] * 10
            assert counts(metrics) == {"hit": 1}

    run(test())


def test_values_too_large_are_not_sent(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=5_000) as (cache, metrics):
            cache.put("page", KEY, bytes(MAX_VALUE_BYTES + 1))
            cache.put("page", b"largest", bytes(MAX_VALUE_BYTES))
            await until(lambda: counts(metrics).get("store"))
            assert counts(metrics) == {"store": 1, "skipped": 1}
            assert await cache.get("page", b"largest") == bytes(MAX_VALUE_BYTES)

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
        async with open_cache(server.url, redis_timeout_ms=5_000) as (cache, metrics):
            assert await cache.get_or_make("page", KEY, value) == (b"value", False)
            assert counts(metrics) == {"poisoned": 1}
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("page", KEY) == b"value"

    run(test())


def test_of_a_huge_value_no_more_is_read_than_ours_can_have(server: RedisServer) -> None:
    server.client().setrange(KEY, 64 << 20, b"x")

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=5_000) as (cache, metrics):
            tracemalloc.start()
            try:
                assert await cache.get("page", KEY) is None
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
        async with open_cache(server.url) as (cache, metrics):
            _ = client.lpush(KEY, "x") if kind == "list" else client.hset(KEY, "x", "y")
            for _ in range(2 * FAILURES_TO_OPEN):
                assert await cache.get("page", KEY) is None
            assert counts(metrics) == {"poisoned": 2 * FAILURES_TO_OPEN}
            cache.put("page", KEY, b"value")
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("page", KEY) == b"value"

    run(test())


def test_a_full_redis_refuses_writes_and_still_reads(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=500) as (cache, metrics):
            for number in range(20):
                cache.put("page", b"new-%d" % number, b"value")
                await asyncio.sleep(0.02)
                assert await cache.get("page", KEY) == b"value"
            found = counts(metrics)
            assert found["hit"] == 20
            assert found["error"] >= FAILURES_TO_OPEN
            assert found["skipped"] > 0  # it is not sent what it would refuse
            assert found["error"] + found["skipped"] == 20
            client.config_set("maxmemory", "0")
            deadline = time.monotonic() + 10
            while not counts(metrics).get("store"):
                assert time.monotonic() < deadline
                cache.put("page", b"again", b"value")
                await asyncio.sleep(0.05)

    run(test())


def test_a_dead_redis_costs_nothing_and_is_asked_again_when_it_lives(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            assert await cache.get("page", KEY) is None
            server.kill()
            started = time.monotonic()
            for _ in range(200):
                value, seconds = await timed_get(cache)
                assert value is None and seconds < TIMEOUT_S + SLACK_S
                cache.put("page", b"other", b"value")
            assert time.monotonic() - started < SLACK_S * 2
            found = counts(metrics)
            assert found["error"] >= FAILURES_TO_OPEN
            assert found["skipped"] >= 150
            server.start()
            server.client().set(KEY, seal(KEY, b"again"))
            deadline = time.monotonic() + 15
            while await cache.get("page", KEY) is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert await cache.get("page", KEY) == b"again"

    run(test())


@pytest.mark.parametrize("connected", [True, False])
def test_a_hanging_redis_costs_a_few_budgets_once(server: RedisServer, connected: bool) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            if connected:
                assert await cache.get("page", KEY) is None
            server.send(signal.SIGSTOP)
            started = time.monotonic()
            slow = 0
            for _ in range(200):
                value, seconds = await timed_get(cache)
                assert value is None
                assert seconds < TIMEOUT_S + SLACK_S
                slow += seconds > TIMEOUT_S / 2
            total = time.monotonic() - started
            assert slow <= FAILURES_TO_OPEN + 1
            assert total < TIMEOUT_S * FAILURES_TO_OPEN + 2 * SLACK_S
            assert counts(metrics)["timeout"] == FAILURES_TO_OPEN
            assert counts(metrics)["skipped"] == 200 - FAILURES_TO_OPEN

    run(test())


def test_a_redis_that_answers_late_costs_the_budget_and_is_used_again_when_it_is_quick(
    server: RedisServer,
) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            assert await cache.get("page", KEY) == b"value"
            client.client_pause(500, all=True)
            for _ in range(FAILURES_TO_OPEN - 1):  # not often enough to be left alone
                value, seconds = await timed_get(cache)
                assert value is None and TIMEOUT_S / 2 < seconds < TIMEOUT_S + SLACK_S
            await asyncio.sleep(0.6)
            assert await cache.get("page", KEY) == b"value"
            assert counts(metrics) == {"hit": 2, "timeout": FAILURES_TO_OPEN - 1}

    run(test())


def test_many_searches_at_once_at_a_hanging_redis_wait_one_budget_together(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            server.send(signal.SIGSTOP)
            found = await asyncio.gather(*(timed_get(cache, b"%d" % number) for number in range(128)))
            assert max(seconds for _, seconds in found) < TIMEOUT_S + SLACK_S
            assert counts(metrics) == {"timeout": 128}
            assert (await timed_get(cache))[1] < TIMEOUT_S / 2

    run(test())


def test_no_search_pays_for_finding_out_whether_redis_is_back(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=400) as (cache, _):
            server.send(signal.SIGSTOP)
            await asyncio.gather(*(cache.get("page", KEY) for _ in range(FAILURES_TO_OPEN)))
            until_s = time.monotonic() + 2.0  # several pauses and probes
            while time.monotonic() < until_s:
                assert (await timed_get(cache))[1] < 0.2
                await asyncio.sleep(0.01)

    run(test())


def test_replies_that_come_too_late_never_meet_another_request(server: RedisServer) -> None:
    client = server.client()
    for number in range(50):
        client.set(b"%d" % number, seal(b"%d" % number, b"value %d" % number))

    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            for _ in range(3):
                await asyncio.gather(*(cache.get("page", b"%d" % number) for number in range(20)))
                server.send(signal.SIGSTOP)
                await asyncio.gather(*(cache.get("page", b"%d" % number) for number in range(20)))
                server.send(signal.SIGCONT)
                deadline = time.monotonic() + 15
                while await cache.get("page", b"0") is None:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.01)
                for number in range(50):
                    assert await cache.get("page", b"%d" % number) in (b"value %d" % number, None)
            assert "poisoned" not in counts(metrics)
            assert counts(metrics)["hit"] > 100

    run(test())


def test_cancelled_searches_cost_no_connection_for_good(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=2_000) as (cache, metrics):
            for steps in range(60):
                tasks = [asyncio.create_task(cache.get("page", KEY)) for _ in range(20)]
                for _ in range(steps % 15):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert await asyncio.gather(*(cache.get("page", KEY) for _ in range(40))) == [b"value"] * 40
            assert set(counts(metrics)) == {"hit"}
            await asyncio.sleep(0.1)
            assert client.info("clients")["connected_clients"] <= 10  # 8 readers, a writer, and this one

    run(test())


def test_a_search_spends_its_budget_once_for_all_its_calls(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=200) as (cache, metrics):
            server.send(signal.SIGSTOP)
            budget = cache.budget()
            started = time.monotonic()
            for key in (b"a", b"b", b"c"):
                assert await cache.get("page", key, budget) is None
            assert time.monotonic() - started < 0.2 + SLACK_S / 2
            assert counts(metrics) == {"timeout": 1, "skipped": 2}

    run(test())


def test_writes_to_a_hanging_redis_are_dropped_when_too_many_wait_and_never_wait_themselves(
    server: RedisServer,
) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            server.send(signal.SIGSTOP)
            started = time.monotonic()
            for number in range(2 * MAX_WAITING):
                cache.put("page", b"%d" % number, b"value")
            assert time.monotonic() - started < SLACK_S
            assert counts(metrics) == {"dropped": MAX_WAITING}
            await until(lambda: counts(metrics).get("skipped"))  # it failed, and the rest was let go
            assert counts(metrics)["timeout"] >= FAILURES_TO_OPEN
            cache.put("page", KEY, b"value")
        assert sum(counts(metrics).values()) == 2 * MAX_WAITING + 1

    run(test())


def test_bytes_bound_the_values_that_wait(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            server.send(signal.SIGSTOP)
            for number in range(20):
                cache.put("page", b"%d" % number, bytes(MAX_VALUE_BYTES))
            assert counts(metrics) == {"dropped": 12}

    run(test())


def test_a_redis_that_closes_idle_connections_is_no_failure(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=2_000) as (cache, metrics):
            for _ in range(5):
                assert await asyncio.gather(*(cache.get("page", KEY) for _ in range(8))) == [b"value"] * 8
                client.client_kill_filter(_type="normal", skipme=True)
                await asyncio.sleep(0.02)
            assert counts(metrics) == {"hit": 40}

    run(test())


def test_a_password_is_used_and_a_wrong_one_is_an_error_that_nobody_sees_in_the_log(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.kill()
    server.start("--requirepass", "s3cret")
    server.client(password="s3cret").set(KEY, seal(KEY, b"value"))  # noqa: S106 (the test's own server)

    async def ask(url: str) -> tuple[bytes | None, dict[str, int]]:
        async with open_cache(url, redis_timeout_ms=500) as (cache, metrics):
            cache.put("page", b"other", b"value")
            value = None
            for _ in range(10):
                value = await cache.get("page", KEY)
            await asyncio.sleep(0.05)
            return value, counts(metrics)

    async def test() -> None:
        right = server.url.replace("://", "://:s3cret@")
        assert await ask(right) == (b"value", {"hit": 10, "store": 1})
        for url in (server.url, server.url.replace("://", "://:hunter2@")):
            assert await ask(url) == (None, {"error": FAILURES_TO_OPEN + 1, "skipped": 10 - FAILURES_TO_OPEN})

    run(test())
    assert any("redis fails" in record.message for record in caplog.records)
    assert not any(word in str(vars(record)) for record in caplog.records for word in ("hunter2", "s3cret"))


def test_a_user_with_two_commands_on_our_keys_is_enough(server: RedisServer) -> None:
    client = server.client()
    client.execute_command("ACL", "SETUSER", "glow", "on", ">pw", "~glow:*", "+getrange", "+set")
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url.replace("://", "://glow:pw@")) as (cache, metrics):
            assert await cache.get("page", KEY) == b"value"
            cache.put("page", KEY, b"new")
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("page", b"not-ours") is None
            assert counts(metrics) == {"hit": 1, "store": 1, "error": 1}

    run(test())


def test_something_that_is_no_redis_is_an_error() -> None:
    async def test() -> None:
        async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)
            writer.close()

        listener = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with open_cache(f"redis://127.0.0.1:{port}") as (cache, metrics):
            cache.put("page", KEY, b"value")
            for _ in range(10):
                assert await cache.get("page", KEY) is None
            await asyncio.sleep(0.05)
            assert counts(metrics) == {"error": FAILURES_TO_OPEN + 1, "skipped": 10 - FAILURES_TO_OPEN}
        listener.close()
        await listener.wait_closed()

    run(test())


def test_closing_is_quick_and_whatever_comes_after_it_passes(server: RedisServer) -> None:
    async def test() -> None:
        async with open_cache(server.url) as (cache, metrics):
            await cache.get("page", KEY)
            server.send(signal.SIGSTOP)
            for number in range(100):
                cache.put("page", b"%d" % number, b"value")
            await asyncio.sleep(0.05)
            started = time.monotonic()
            await cache.close()
            assert time.monotonic() - started < SLACK_S
            assert counts(metrics) == {"miss": 1, "dropped": 100}
            cache.put("page", KEY, b"value")
            assert await cache.get("page", KEY) is None
            assert counts(metrics)["skipped"] == 2

    run(test())


def test_searches_go_on_while_redis_is_killed_stopped_poisoned_and_restarted(server: RedisServer) -> None:
    """Two seconds of 16 callers; every answer is right, and none is late."""

    async def test() -> None:
        async with open_cache(server.url, cache_entries=5) as (cache, metrics):
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
                    found, _ = await cache.get_or_make("page", b"key %d" % (number % 100), make)
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
    await asyncio.sleep(0.3)
    server.send(signal.SIGCONT)
    await asyncio.sleep(0.5)
