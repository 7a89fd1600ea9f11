"""What a real redis-server holds: found by other workers, behind sockets, TLS and passwords."""

import asyncio
import logging
import subprocess

import pytest

from glow_service.redis.breaker import FAILURES_TO_OPEN
from glow_service.redis.envelope import seal
from tests.ports import free_port
from tests.service.shared_cache.harness import KEY, PATIENCE_MS, RedisServer, counts, open_cache, run, until


def test_what_one_worker_puts_another_finds(server: RedisServer) -> None:
    async def test() -> None:
        async with (
            open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (one, written),
            open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (other, read),
        ):
            one.put("response", KEY, b"\0value\xff")
            one.put("vector", KEY.replace(b"page", b"vector"), b"")
            await until(lambda: counts(written).get("store") == counts(written, "vector").get("store") == 1)
            assert await other.get("response", KEY) == b"\0value\xff"
            assert await other.get("vector", KEY.replace(b"page", b"vector")) == b""
            assert await other.get("response", b"glow:1:page:other") is None
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
            async with open_cache(url, redis_timeout_ms=PATIENCE_MS) as (cache, _):
                assert await cache.get("response", KEY) == b"value"
        async with open_cache(f"rediss://127.0.0.1:{tls_port}", redis_timeout_ms=PATIENCE_MS) as (
            cache,
            metrics,
        ):
            assert await cache.get("response", KEY) is None  # nobody vouches for its certificate
            assert counts(metrics) == {"error": 1}

    run(test())


def test_a_redis_hit_is_local_the_next_time(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url, entries=10, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            for _ in range(3):
                assert await cache.get("response", KEY) == b"value"
            assert counts(metrics) == {"hit": 1}

    run(test())


def test_what_redis_has_is_not_made(server: RedisServer) -> None:
    server.client().set(KEY, seal(KEY, b"value"))

    async def never() -> bytes:
        raise AssertionError("made although Redis has it")

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            found = await asyncio.gather(*(cache.get_or_make("response", KEY, never) for _ in range(10)))
            assert found == [(b"value", True)] * 10
            assert counts(metrics) == {"hit": 1}

    run(test())


def test_a_redis_that_closes_idle_connections_is_no_failure(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url, redis_timeout_ms=PATIENCE_MS) as (cache, metrics):
            for _ in range(5):
                assert await asyncio.gather(*(cache.get("response", KEY) for _ in range(8))) == [b"value"] * 8
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

    run(test())
    assert any("redis reads fail" in record.message for record in caplog.records)
    assert not any(word in str(vars(record)) for record in caplog.records for word in ("hunter2", "s3cret"))


def test_a_user_with_two_commands_on_our_keys_is_enough(server: RedisServer) -> None:
    client = server.client()
    client.execute_command("ACL", "SETUSER", "glow", "on", ">pw", "~glow:*", "+getrange", "+set")
    client.set(KEY, seal(KEY, b"value"))

    async def test() -> None:
        async with open_cache(server.url.replace("://", "://glow:pw@"), redis_timeout_ms=PATIENCE_MS) as (
            cache,
            metrics,
        ):
            assert await cache.get("response", KEY) == b"value"
            cache.put("response", KEY, b"new")
            await until(lambda: counts(metrics).get("store"))
            assert await cache.get("response", b"not-ours") is None
            assert counts(metrics) == {"hit": 1, "store": 1, "error": 1}

    run(test())


def test_something_that_is_no_redis_is_an_error() -> None:
    async def test() -> None:
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

    run(test())
