"""The cache as the service uses it, without Redis; the folder `shared_cache` has the rest."""

import asyncio
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glow.errors import ConfigError
from glow.index import Index
from glow_service.cache import Cache
from glow_service.errors import OverloadedError
from glow_service.redis import check_redis_url
from glow_service.telemetry import EVENTS
from glow_service.telemetry.metrics import Metrics

KEY = b"glow:1:page:abc"


def make(**settings: Any) -> tuple[Cache, Metrics]:
    metrics = Metrics()
    return Cache(metrics, **{"entries": 10_000, **settings}), metrics


def counts(metrics: Metrics, tier: str, kind: str = "response") -> dict[str, int]:
    """Events of a tier and kind that happened at all."""
    samples = [sample for family in metrics.cache_events.collect() for sample in family.samples]
    found = {
        sample.labels["event"]: int(sample.value)
        for sample in samples
        if (sample.labels["tier"], sample.labels["kind"]) == (tier, kind)
    }
    return {event: number for event, number in found.items() if number}


def maker(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make_value() -> bytes:
        return value

    return make_value


async def never() -> bytes:
    raise AssertionError("made although it was there")


def finish_at_once(work: Any) -> Any:
    """What a coroutine returns that never waits; one that does fails."""
    with pytest.raises(StopIteration) as stopped:
        work.send(None)
    return stopped.value.value


def test_what_was_put_is_found_under_its_kind_and_key() -> None:
    cache, metrics = make()

    async def test() -> None:
        cache.put("response", KEY, b"1")
        assert await cache.get("response", KEY) == b"1"
        assert await cache.get("vector", KEY) is None
        assert await cache.get("response", b"other") is None

    asyncio.run(test())
    assert counts(metrics, "local") == {"store": 1, "hit": 1, "miss": 1}
    assert counts(metrics, "local", "vector") == {"miss": 1}
    assert counts(metrics, "redis") == {}


def test_a_local_hit_waits_for_nothing_and_makes_nothing() -> None:
    cache, _ = make()
    cache.put("response", KEY, b"1")
    assert finish_at_once(cache.get("response", KEY)) == b"1"
    assert finish_at_once(cache.get_or_make("response", KEY, never)) == (b"1", True)


def test_a_missing_value_is_made_once_and_then_at_hand() -> None:
    cache, metrics = make()

    async def test() -> None:
        assert await cache.get_or_make("response", KEY, maker(b"1")) == (b"1", False)
        assert await cache.get_or_make("response", KEY, never) == (b"1", True)

    asyncio.run(test())
    assert counts(metrics, "local") == {"miss": 1, "store": 1, "hit": 1}


def test_callers_at_once_share_one_making() -> None:
    cache, _ = make()
    calls = 0

    async def slow() -> bytes:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return b"1"

    async def test() -> None:
        found = await asyncio.gather(*(cache.get_or_make("response", KEY, slow) for _ in range(20)))
        assert found == [(b"1", False)] + [(b"1", True)] * 19

    asyncio.run(test())
    assert calls == 1


def test_a_vector_can_be_made_inside_the_making_of_a_page_of_the_same_key() -> None:
    cache, _ = make()

    async def page() -> bytes:
        vector, _ = await cache.get_or_make("vector", KEY, maker(b"v"))
        return b"page of " + vector

    async def test() -> None:
        async with asyncio.timeout(5):
            assert await cache.get_or_make("response", KEY, page) == (b"page of v", False)

    asyncio.run(test())


def test_errors_are_not_kept() -> None:
    cache, metrics = make()

    async def fails() -> bytes:
        raise OverloadedError("full")

    async def test() -> None:
        with pytest.raises(OverloadedError):
            await cache.get_or_make("response", KEY, fails)
        assert await cache.get_or_make("response", KEY, maker(b"whole")) == (b"whole", False)

    asyncio.run(test())
    assert counts(metrics, "local") == {"miss": 2, "store": 1}


def test_settings_bound_entries_and_time() -> None:
    cache, metrics = make(entries=2, ttl_s=1)

    async def test() -> None:
        for number in range(5):
            cache.put("response", b"%d" % number, b"x")
        assert [await cache.get("response", b"%d" % number) for number in range(5)] == [None] * 3 + [b"x"] * 2
        await asyncio.sleep(1.01)
        assert await cache.get("response", b"4") is None

    asyncio.run(test())
    assert counts(metrics, "local")["evict"] == 4


def test_large_answers_do_not_fill_the_memory() -> None:
    cache, metrics = make(entries=10_000)
    tracemalloc.start()
    try:
        for number in range(200):
            cache.put("response", b"%d" % number, bytes(1 << 20))
            cache.put("response", b"huge%d" % number, bytes((1 << 20) + 1))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 66 << 20
    assert counts(metrics, "local")["evict"] > 130
    assert counts(metrics, "local")["skipped"] == 200


def test_without_entries_and_redis_every_call_passes_through() -> None:
    cache, metrics = make(entries=0)
    assert not cache.enabled
    cache.put("response", KEY, b"1")
    assert finish_at_once(cache.get("response", KEY)) is None
    for _ in range(2):
        assert finish_at_once(cache.get_or_make("response", KEY, maker(b"2"))) == (b"2", False)
    assert counts(metrics, "local") == {}
    calls = 0

    async def slow() -> bytes:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return b"3"

    async def test() -> None:
        found = await asyncio.gather(*(cache.get_or_make("response", KEY, slow) for _ in range(3)))
        assert found == [(b"3", False)] * 3
        await cache.close()

    asyncio.run(test())
    assert calls == 3


def test_the_keys_of_an_index_are_made_once_and_anew_for_another(index: Index) -> None:
    cache, _ = make()
    keys = cache.keys(index)
    assert cache.keys(index) is keys
    other = replace(index, manifest=index.manifest.model_copy(update={"name": "v-other"}))
    assert cache.keys(other).page("a") != keys.page("a")
    assert cache.keys(index).page("a") == keys.page("a")


def test_every_event_is_documented() -> None:
    make(redis_url="redis://127.0.0.1:1")[1].cache_events.collect()
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "`glow_cache_events_total`" in line)
    named, more = re.findall(r"Cache events: (.*); with Redis also (.*)\.", row)[0]
    assert {*named.split(", ")} == set(EVENTS["local"])
    assert {*named.split(", "), *more.split(", ")} == set(EVENTS["local"]) | set(EVENTS["redis"])


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://:hunter2@host",
        "redis://:hunter2@host:port",
        "redis://:hunter2@host?colour=red",
    ],
)
def test_a_url_that_is_no_redis_is_refused_at_once_without_saying_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        make(redis_url=url)
    with pytest.raises(ConfigError, match="redis_url") as refused:
        check_redis_url(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__


@pytest.mark.parametrize(
    "url", ["", "redis://host", "rediss://me:pw@host:1/2?max_connections=3", "unix:///run/redis"]
)
def test_a_url_of_redis_is_accepted_without_asking_it(url: str) -> None:
    check_redis_url(url)
    make(redis_url=url)
