"""The cache without Redis: its local part, envelope and breaker, and its interface."""

import asyncio
import random
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError
from glow.index import Index
from glow_service.cache import ENTRY_OVERHEAD_BYTES, Cache, LocalCache
from glow_service.errors import OverloadedError
from glow_service.redis import check_redis_url
from glow_service.redis.cache import (
    ENVELOPE_BYTES,
    FAILURES_TO_OPEN,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Breaker,
    open_envelope,
    seal,
)
from glow_service.telemetry import EVENTS
from glow_service.telemetry.metrics import Metrics, TierEvents
from tests.service.asking import watched
from tests.service.shared_cache.harness import counts


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def make_local(
    entries: int = 3, size: int = 1 << 20, ttl_s: float = 60, clock: Clock | None = None
) -> tuple[LocalCache, Metrics]:
    metrics = Metrics()
    return LocalCache(entries, size, ttl_s, TierEvents(metrics, "local", "page"), clock or Clock()), metrics


def count(metrics: Metrics, event: str) -> int:
    labels = {"tier": "local", "kind": "page", "event": event}
    return int(metrics.registry.get_sample_value("glow_cache_events_total", labels) or 0)


@pytest.mark.parametrize("value", [b"1", b""])
def test_a_stored_value_is_found_and_another_key_is_not(value: bytes) -> None:
    cache, metrics = make_local()
    cache.put(b"a", value)
    assert cache.get(b"a") == value and cache.get(b"b") is None
    assert [count(metrics, event) for event in ("store", "hit", "miss")] == [1, 1, 1]


def test_what_was_used_longest_ago_makes_room() -> None:
    cache, metrics = make_local(entries=3)
    for key in (b"a", b"b", b"c"):
        cache.put(key, b"x")
    cache.get(b"a")
    cache.put(b"d", b"x")
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert count(metrics, "evict") == 1
    assert len(cache) == 3


def test_storing_again_replaces_and_counts_as_use() -> None:
    cache, metrics = make_local(entries=2)
    cache.put(b"a", b"1")
    cache.put(b"b", b"1")
    cache.put(b"a", b"22")
    cache.put(b"c", b"1")
    assert cache.get(b"a") == b"22" and cache.get(b"b") is None
    assert count(metrics, "evict") == 1


def test_an_entry_goes_when_its_time_is_over_however_often_it_is_read() -> None:
    clock = Clock()
    cache, metrics = make_local(ttl_s=60, clock=clock)
    cache.put(b"a", b"1")
    for _ in range(5):
        clock.now += 11.9
        assert cache.get(b"a") == b"1"
    clock.now = 160.0
    assert cache.get(b"a") is None and len(cache) == cache.size_bytes == 0
    assert count(metrics, "evict") == count(metrics, "miss") == 1


def test_bytes_bound_what_is_kept() -> None:
    size = 4 * (1_000 + ENTRY_OVERHEAD_BYTES)
    cache, metrics = make_local(entries=100, size=size)
    for number in range(20):
        cache.put(b"%d" % number, bytes(1_000))
        assert cache.size_bytes <= size
    assert len(cache) == 4
    assert count(metrics, "evict") == 16


def test_a_value_larger_than_everything_is_not_kept_and_costs_no_other_entry() -> None:
    cache, metrics = make_local(entries=100, size=10_000)
    cache.put(b"a", b"1")
    cache.put(b"b", bytes(10_001))
    assert cache.get(b"a") == b"1" and cache.get(b"b") is None
    assert count(metrics, "skipped") == 1


def test_a_value_that_is_too_large_replaces_the_old_one_by_nothing() -> None:
    cache, _ = make_local(size=10_000)
    cache.put(b"a", b"old")
    cache.put(b"a", bytes(10_001))
    assert cache.get(b"a") is None


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.binary(max_size=600)), max_size=30))
def test_the_bytes_counted_are_the_bytes_kept(puts: list[tuple[bytes, bytes]]) -> None:
    cache, _ = make_local(entries=3, size=2_000)
    last: dict[bytes, bytes] = {}
    for key, value in puts:
        cache.put(key, value)
        last[key] = value
        assert cache.size_bytes <= 2_000
    kept = {key: value for key in last if (value := cache.get(key)) is not None}
    assert all(last[key] == value for key, value in kept.items())
    assert cache.size_bytes == sum(len(value) + ENTRY_OVERHEAD_BYTES for value in kept.values())


@given(st.binary(max_size=40), st.binary(max_size=200))
def test_an_envelope_gives_back_its_value_under_its_key_alone(key: bytes, value: bytes) -> None:
    sealed = seal(key, value)
    assert open_envelope(key, sealed) == value and open_envelope(key + b"x", sealed) is None
    assert open_envelope(bytes(byte ^ 1 for byte in key), sealed) == (None if key else value)
    assert open_envelope(key, sealed[:-1]) is None and open_envelope(key, sealed + b"x") is None
    assert open_envelope(key, value) is None


@pytest.mark.parametrize("position", range(ENVELOPE_BYTES + 5))
def test_an_envelope_with_one_changed_bit_is_refused(position: int) -> None:
    sealed = bytearray(seal(b"key", b"value"))
    sealed[position] ^= 1
    assert open_envelope(b"key", bytes(sealed)) is None


def test_bytes_cannot_move_between_key_and_value() -> None:
    assert open_envelope(b"a", seal(b"ab", b"c")[:ENVELOPE_BYTES] + b"bc") is None


def jitter() -> random.Random:
    return random.Random(1)  # noqa: S311 (no secret is made of it)


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock, jitter())
    for _ in range(FAILURES_TO_OPEN):
        assert not breaker.is_open
        breaker.failed()
    assert breaker.is_open
    return breaker


def test_a_breaker_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(Clock(), jitter())
    for _ in range(20):
        for _ in range(FAILURES_TO_OPEN - 1):
            breaker.failed()
        breaker.succeeded()
    assert not breaker.is_open
    opened(Clock())


def test_an_open_breaker_gives_one_probe_when_its_pause_is_over() -> None:
    clock = Clock()
    breaker = opened(clock)
    assert not breaker.take_probe()
    clock.now += FIRST_PAUSE_S
    assert breaker.take_probe() and not breaker.take_probe() and breaker.succeeded()
    assert not breaker.is_open


def test_pauses_grow_to_a_bound_and_differ() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses = [breaker.pause_s]
    for _ in range(12):
        clock.now += LONGEST_PAUSE_S
        assert breaker.take_probe()
        breaker.failed()
        assert not breaker.take_probe()
        pauses.append(breaker.pause_s)
    assert FIRST_PAUSE_S / 2 <= pauses[0] <= FIRST_PAUSE_S
    assert all(LONGEST_PAUSE_S / 2 <= pause <= LONGEST_PAUSE_S for pause in pauses[6:])
    assert len(set(pauses)) == len(pauses)


def test_late_reports_of_calls_from_before_the_opening_change_nothing() -> None:
    clock = Clock()
    breaker = opened(clock)
    pause = breaker.pause_s
    for _ in range(50):
        breaker.failed()
    assert breaker.pause_s == pause
    breaker.succeeded()
    assert breaker.is_open


def test_probes_that_pass_while_calls_fail_do_not_shorten_the_pauses() -> None:
    clock = Clock()
    breaker = opened(clock)
    for _ in range(8):
        clock.now += LONGEST_PAUSE_S
        assert breaker.take_probe()
        breaker.succeeded()
        assert breaker.failed()  # the first call after it
    assert breaker.pause_s >= LONGEST_PAUSE_S / 2


def test_a_call_that_succeeds_after_the_probe_makes_the_next_pause_short_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    for _ in range(6):
        clock.now += LONGEST_PAUSE_S
        breaker.take_probe()
        breaker.failed()
    clock.now += LONGEST_PAUSE_S
    breaker.take_probe()
    breaker.succeeded()
    breaker.succeeded()
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed()
    assert breaker.is_open and breaker.pause_s <= FIRST_PAUSE_S


# The cache as the service uses it, without Redis; the folder `shared_cache` has the rest.

KEY = b"glow:1:page:abc"


def make(**settings: Any) -> tuple[Cache, Metrics]:
    metrics = Metrics()
    return Cache(metrics, **{"entries": 10_000, **settings}), metrics


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


@watched
async def test_what_was_put_is_found_under_its_kind_and_key() -> None:
    cache, metrics = make()
    cache.put("response", KEY, b"1")
    assert await cache.get("response", KEY) == b"1" and await cache.get("vector", KEY) is None
    assert await cache.get("response", b"other") is None
    assert counts(metrics, "local") == {"store": 1, "hit": 1, "miss": 1}
    assert counts(metrics, "local", "vector") == {"miss": 1} and counts(metrics, "redis") == {}


def test_a_local_hit_waits_for_nothing_and_makes_nothing() -> None:
    cache, _ = make()
    cache.put("response", KEY, b"1")
    assert finish_at_once(cache.get("response", KEY)) == b"1"
    assert finish_at_once(cache.get_or_make("response", KEY, never)) == (b"1", True)


@watched
async def test_a_missing_value_is_made_once_and_then_at_hand() -> None:
    cache, metrics = make()
    assert await cache.get_or_make("response", KEY, maker(b"1")) == (b"1", False)
    assert await cache.get_or_make("response", KEY, never) == (b"1", True)
    assert counts(metrics, "local") == {"miss": 1, "store": 1, "hit": 1}


@pytest.mark.parametrize(("entries", "making"), [(10_000, 1), (0, 20)], ids=["kept", "without entries"])
@watched
async def test_callers_at_once_share_one_making_where_values_are_kept(entries: int, making: int) -> None:
    cache, calls = make(entries=entries)[0], 0

    async def slow() -> bytes:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return b"1"

    found = await asyncio.gather(*(cache.get_or_make("response", KEY, slow) for _ in range(20)))
    assert found == [(b"1", False)] * making + [(b"1", True)] * (20 - making)
    await cache.close()
    assert calls == making


@watched
async def test_a_vector_can_be_made_inside_the_making_of_a_page_of_the_same_key() -> None:
    cache, _ = make()

    async def page() -> bytes:
        vector, _ = await cache.get_or_make("vector", KEY, maker(b"v"))
        return b"page of " + vector

    async with asyncio.timeout(5):
        assert await cache.get_or_make("response", KEY, page) == (b"page of v", False)


@watched
async def test_errors_are_not_kept() -> None:
    cache, metrics = make()

    async def fails() -> bytes:
        raise OverloadedError("full")

    with pytest.raises(OverloadedError):
        await cache.get_or_make("response", KEY, fails)
    assert await cache.get_or_make("response", KEY, maker(b"whole")) == (b"whole", False)
    assert counts(metrics, "local") == {"miss": 2, "store": 1}


@watched
async def test_settings_bound_entries_and_time() -> None:
    cache, metrics = make(entries=2, ttl_s=1)
    for number in range(5):
        cache.put("response", b"%d" % number, b"x")
    assert [await cache.get("response", b"%d" % number) for number in range(5)] == [None] * 3 + [b"x"] * 2
    await asyncio.sleep(1.01)
    assert await cache.get("response", b"4") is None
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
