"""A redis-server that is dead, hangs, is late or trickles costs a search its budget, and is used again when it is back."""

import asyncio
import signal
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from glow_service.redis.cache import FAILURES_TO_OPEN, MAX_VALUE_BYTES, seal
from tests.service.asking import watched
from tests.service.shared_cache.harness import (
    KEY,
    SLACK_S,
    TIMEOUT_S,
    RedisServer,
    counts,
    open_cache,
    timed_get,
    until,
    until_found,
)
from tests.slow_peer import SlowPeer


@watched
async def test_a_dead_redis_costs_nothing_and_is_asked_again_when_it_lives(server: RedisServer) -> None:
    async with open_cache(server.url) as (cache, metrics):
        assert await cache.get("response", KEY) is None
        server.kill()
        started = time.monotonic()
        for _ in range(200):
            value, seconds = await timed_get(cache)
            assert value is None and seconds < TIMEOUT_S + SLACK_S
            cache.put("response", b"other", b"value")
        assert time.monotonic() - started < SLACK_S * 2
        found = counts(metrics)
        # On a busy machine the end of a connection may be heard of only after the time for Redis is over.
        assert found["error"] + found.get("timeout", 0) >= FAILURES_TO_OPEN
        assert found["skipped"] >= 150
        server.start()
        server.client().set(KEY, seal(KEY, b"again"))
        await until_found(cache, b"again")


@pytest.mark.parametrize("connected", [True, False])
@watched
async def test_a_hanging_redis_costs_a_few_budgets_once(server: RedisServer, connected: bool) -> None:
    async with open_cache(server.url) as (cache, metrics):
        if connected:
            assert await cache.get("response", KEY) is None
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


@watched
async def test_a_redis_that_answers_late_costs_the_budget_and_is_used_again_when_it_is_quick(
    server: RedisServer,
) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    async with open_cache(server.url) as (cache, metrics):
        await until_found(cache, b"value")
        # Until it is told otherwise: a pause for a time could end before the reads do.
        server.send(signal.SIGSTOP)
        for _ in range(FAILURES_TO_OPEN - 1):  # not often enough to be left alone
            value, seconds = await timed_get(cache)
            assert value is None and TIMEOUT_S / 2 < seconds < TIMEOUT_S + SLACK_S
        server.send(signal.SIGCONT)
        await until_found(cache, b"value")
        found = counts(metrics)
        assert found["hit"] == 2 and found["timeout"] >= FAILURES_TO_OPEN - 1


@watched
async def test_many_searches_at_once_at_a_hanging_redis_wait_one_budget_together(server: RedisServer) -> None:
    async with open_cache(server.url) as (cache, metrics):
        server.send(signal.SIGSTOP)
        found = await asyncio.gather(*(timed_get(cache, b"%d" % number) for number in range(128)))
        assert max(seconds for _, seconds in found) < TIMEOUT_S + SLACK_S
        assert counts(metrics) == {"timeout": 128}
        assert (await timed_get(cache))[1] < TIMEOUT_S / 2


@watched
async def test_no_search_pays_for_finding_out_whether_redis_is_back(server: RedisServer) -> None:
    async with open_cache(server.url, redis_timeout_ms=400) as (cache, _):
        server.send(signal.SIGSTOP)
        await asyncio.gather(*(cache.get("response", KEY) for _ in range(FAILURES_TO_OPEN)))
        until_s = time.monotonic() + 2.0  # several pauses and probes
        while time.monotonic() < until_s:
            assert (await timed_get(cache))[1] < 0.2
            await asyncio.sleep(0.01)


@watched
async def test_replies_that_come_too_late_never_meet_another_request(server: RedisServer) -> None:
    client = server.client()
    for number in range(50):
        client.set(b"%d" % number, seal(b"%d" % number, b"value %d" % number))
    async with open_cache(server.url) as (cache, metrics):
        for _ in range(3):
            await asyncio.gather(*(cache.get("response", b"%d" % number) for number in range(20)))
            server.send(signal.SIGSTOP)
            await asyncio.gather(*(cache.get("response", b"%d" % number) for number in range(20)))
            server.send(signal.SIGCONT)
            deadline = time.monotonic() + 15
            while await cache.get("response", b"0") is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            for number in range(50):
                assert await cache.get("response", b"%d" % number) in (b"value %d" % number, None)
        assert "poisoned" not in counts(metrics) and counts(metrics)["hit"] > 100


@watched
async def test_cancelled_searches_cost_no_connection_for_good(server: RedisServer) -> None:
    client = server.client()
    client.set(KEY, seal(KEY, b"value"))
    async with open_cache(server.url, redis_timeout_ms=2_000) as (cache, metrics):
        for steps in range(60):
            tasks = [asyncio.create_task(cache.get("response", KEY)) for _ in range(20)]
            for _ in range(steps % 15):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert await asyncio.gather(*(cache.get("response", KEY) for _ in range(40))) == [b"value"] * 40
        assert set(counts(metrics)) == {"hit"}
        # 8 readers, a writer, and this one
        await until(lambda: client.info("clients")["connected_clients"] <= 10)


@watched
async def test_a_search_spends_its_budget_once_for_all_its_calls(server: RedisServer) -> None:
    async with open_cache(server.url, redis_timeout_ms=200) as (cache, metrics):
        server.send(signal.SIGSTOP)
        budget = cache.budget()
        started = time.monotonic()
        for key in (b"a", b"b", b"c"):
            assert await cache.get("response", key, budget) is None
        assert time.monotonic() - started < 0.2 + SLACK_S / 2
        assert counts(metrics) == {"timeout": 1, "skipped": 2}


# A redis-server behind a network that trickles, and peers whose replies are too long: a budget is a budget.


@pytest.fixture
def peer(server: RedisServer) -> Iterator[SlowPeer]:
    with SlowPeer(server.port) as peer:
        yield peer


@pytest.mark.parametrize("mode", ["trickle", "hang"])
@watched
async def test_a_redis_that_trickles_costs_a_few_budgets_and_is_used_again_at_once(
    server: RedisServer, peer: SlowPeer, mode: Literal["trickle", "hang"]
) -> None:
    server.client().set(KEY, seal(KEY, b"value"))
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
@watched
async def test_a_reply_that_is_too_long_or_none_is_an_error_and_takes_no_memory(reply: bytes) -> None:
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
