"""Values in Redis: read, written in the background, and dropped."""

import asyncio
import logging
import signal
import subprocess
import time

import pytest

from glow_service.redis.cache import FAILURES_TO_OPEN, MAX_VALUE_BYTES, MAX_WAITING, seal
from tests.ports import free_port
from tests.service.asking import watched
from tests.service.shared_cache.harness import (
    KEY,
    PATIENCE_MS,
    SLACK_S,
    TIMEOUT_S,
    RedisServer,
    counts,
    open_cache,
    until,
)


@watched
async def test_what_one_worker_puts_another_finds(server: RedisServer) -> None:
    async with (
        open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (one, written),
        open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (other, read),
    ):
        one.put("response", KEY, b"\0value\xff")
        one.put("vector", KEY.replace(b"page", b"vector"), b"")
        await until(lambda: counts(written).get("store") == counts(written, kind="vector").get("store") == 1)
        assert await other.get("response", KEY) == b"\0value\xff"
        assert await other.get("vector", KEY.replace(b"page", b"vector")) == b""
        assert await other.get("response", b"glow:1:page:other") is None
        assert counts(read) == {"hit": 1, "miss": 1}
    assert 0 < server.client().ttl(KEY) <= 300


@watched
async def test_redis_behind_a_unix_socket_and_behind_tls(server: RedisServer) -> None:
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
    certified = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={folder}/cert.pem"
    for url in (f"unix://{folder}/redis.sock", certified):
        async with open_cache(url, redis_timeout_ms=PATIENCE_MS) as (cache, _):
            assert await cache.get("response", KEY) == b"value"
    async with open_cache(f"rediss://127.0.0.1:{tls_port}", redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        assert await cache.get("response", KEY) is None  # nobody vouches for its certificate
        assert counts(metrics) == {"error": 1}


@watched
async def test_a_redis_hit_is_local_the_next_time(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))
    async with open_cache(server.url, entries=10, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        for _ in range(3):
            assert await cache.get("response", KEY) == b"value"
        assert counts(metrics) == {"hit": 1}


@watched
async def test_what_redis_has_is_not_made(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def never() -> bytes:
        raise AssertionError("made although Redis has it")

    async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        found = await asyncio.gather(*(cache.get_or_make("response", KEY, never) for _ in range(10)))
        assert found == [(b"value", True)] * 10
        assert counts(metrics) == {"hit": 1}


@watched
async def test_a_redis_that_closes_idle_connections_is_no_failure(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        for _ in range(5):
            assert await asyncio.gather(*(cache.get("response", KEY) for _ in range(8))) == [b"value"] * 8
            client.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.02)
        assert counts(metrics) == {"hit": 40}


def test_a_password_is_used_and_a_wrong_one_is_an_error_that_nobody_sees_in_the_log(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.kill()
    server.start("--requirepass", "s3cret")
    server.client(password="s3cret").set(KEY, seal(KEY, b"value"))  # noqa: S106 (the test's own server)

    async def ask(url: str) -> tuple[bytes | None, dict[str, int]]:
        async with open_cache(url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            cache.put("response", b"other", b"value")
            value = None
            for _ in range(10):
                value = await cache.get("response", KEY)
            await until(lambda: sum(counts(metrics).values()) == 11)  # what the writer met, too
            return value, counts(metrics)

    async def test() -> None:
        right = server.url.replace("://", "://:s3cret@")
        assert await ask(right) == (b"value", {"hit": 10, "store": 1})
        for url in (server.url, server.url.replace("://", "://:hunter2@")):
            assert await ask(url) == (None, {"error": FAILURES_TO_OPEN + 1, "skipped": 10 - FAILURES_TO_OPEN})

    watched(test)()
    assert any("redis reads fail" in record.message for record in caplog.records)
    assert not any(word in str(vars(record)) for record in caplog.records for word in ("hunter2", "s3cret"))


@watched
async def test_a_user_with_two_commands_on_our_keys_is_enough(server: RedisServer) -> None:
    server.client().execute_command("ACL", "SETUSER", "glow", "on", ">pw", "~glow:*", "+getrange", "+set")
    server.client().set(KEY, seal(KEY, b"value"))
    url = server.url.replace("://", "://glow:pw@")
    async with open_cache(url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        assert await cache.get("response", KEY) == b"value"
        cache.put("response", KEY, b"new")
        await until(lambda: counts(metrics).get("store"))
        assert await cache.get("response", b"not-ours") is None
        assert counts(metrics) == {"hit": 1, "store": 1, "error": 1}


@watched
async def test_something_that_is_no_redis_is_an_error() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with open_cache(f"redis://127.0.0.1:{port}", redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
        cache.put("response", KEY, b"value")
        for _ in range(10):
            assert await cache.get("response", KEY) is None
        await until(lambda: sum(counts(metrics).values()) == 11)  # what the writer met, too
        assert counts(metrics) == {"error": FAILURES_TO_OPEN + 1, "skipped": 10 - FAILURES_TO_OPEN}
    listener.close()
    await listener.wait_closed()


# Writes that wait, a cache that closes, and searches that go on while Redis is killed, stopped and poisoned.


@watched
async def test_writes_to_a_hanging_redis_are_dropped_when_too_many_wait_and_never_wait_themselves(
    server: RedisServer,
) -> None:
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


@watched
async def test_bytes_bound_the_values_that_wait(server: RedisServer) -> None:
    async with open_cache(server.url) as (cache, metrics):
        server.send(signal.SIGSTOP)
        for number in range(20):
            cache.put("response", b"%d" % number, bytes(MAX_VALUE_BYTES))
        assert counts(metrics) == {"dropped": 12}


@watched
async def test_closing_is_quick_and_whatever_comes_after_it_passes(server: RedisServer) -> None:
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


@watched
async def test_searches_go_on_while_redis_is_killed_stopped_poisoned_and_restarted(
    server: RedisServer,
) -> None:
    """Some seconds of 16 callers; every answer is right, and none is late."""
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
