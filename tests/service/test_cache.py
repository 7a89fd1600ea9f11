"""The cache in the process: what it keeps, and concurrent callers; `test_redis.py` has what processes share."""

import asyncio
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cachetools import TTLCache

from glow.index import Index
from glow_service.cache import Cache, SingleFlight
from glow_service.errors import DeadlineError, OverloadedError
from glow_service.telemetry.metrics import EVENTS, Metrics
from tests.service.asking import watched

KEY = b"glow:1:page:abc"


def make(**settings: Any) -> tuple[Cache, Metrics]:
    metrics = Metrics()
    return Cache(metrics, **{"entries": 10_000, **settings}), metrics


def counts(metrics: Metrics, kind: str = "response") -> dict[str, int]:
    """Events of the process's own entries that happened at all."""
    samples = [sample for family in metrics.cache_events.collect() for sample in family.samples]
    found = [each for each in samples if (each.labels["tier"], each.labels["kind"]) == ("local", kind)]
    return {each.labels["event"]: int(each.value) for each in found if each.value and "_total" in each.name}


def maker(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make_value() -> bytes:
        return value

    return make_value


async def is_kept(cache: Cache, key: bytes) -> bool:
    class MissingError(Exception):
        pass

    async def miss() -> bytes:
        raise MissingError

    try:
        await cache.response(key, miss)
    except MissingError:
        return False
    return True


@watched
async def test_a_response_is_made_once_for_its_key_and_errors_are_not_kept() -> None:
    cache, metrics = make()

    async def fail() -> bytes:
        raise OverloadedError("full")

    with pytest.raises(OverloadedError):
        await cache.response(KEY, fail)
    for _ in range(2):
        assert await cache.response(KEY, maker(b"1")) == b"1"
        assert await cache.response(b"other", maker(b"")) == b""
    assert counts(metrics) == {"miss": 3, "store": 2, "hit": 2}


@watched
async def test_what_was_used_longest_ago_makes_room_and_time_ends_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(
        "glow_service.cache.TTLCache",
        lambda size, ttl, getsizeof, kind=TTLCache: kind(size, ttl, lambda: now, getsizeof),
    )
    cache, metrics = make(entries=3, ttl_s=60)
    for key in (b"a", b"b", b"c", b"a", b"d"):  # `a` is used again
        await cache.response(key, maker(b"x"))
    now += 59
    assert [await is_kept(cache, key) for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert counts(metrics)["evict"] == 1
    now += 1  # reads do not extend the time
    assert not await is_kept(cache, b"a")


@watched
async def test_large_responses_do_not_fill_the_memory() -> None:
    cache, metrics = make(entries=10_000)
    tracemalloc.start()
    try:
        for number in range(100):
            await cache.response(b"%d" % number, lambda: maker(bytes(1 << 20))())
            await cache.response(b"huge%d" % number, lambda: maker(bytes((1 << 20) + 1))())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 66 << 20
    assert counts(metrics)["evict"] > 30
    assert counts(metrics)["skipped"] == 100


@watched
async def test_without_entries_and_redis_every_call_passes_through(index: Index) -> None:
    cache, metrics = make(entries=0)
    assert not cache.enabled
    for value in (b"1", b"2"):
        assert await cache.response(KEY, maker(value)) == value
    cache.put_vector(index, "bees", np.ones(2, np.float32))
    assert cache.vector(index, "bees") is None
    assert counts(metrics) == {}


def test_a_vector_is_kept_without_the_batch_that_it_came_from(index: Index) -> None:
    cache, metrics = make()
    batch = np.ones((1_000, 2), np.float32)
    cache.put_vector(index, "bees", batch[0])
    kept = cache.vector(index, "bees")
    assert kept is not None and kept.base is None and kept.tolist() == [1, 1]
    assert cache.vector(index, "owls") is None
    assert counts(metrics, "vector") == {"store": 1, "hit": 1, "miss": 1}


def test_the_keys_of_an_index_are_made_once_and_anew_for_another(index: Index) -> None:
    cache, _ = make()
    keys = cache.keys(index)
    assert cache.keys(index) is keys
    other = replace(index, manifest=index.manifest.model_copy(update={"name": "v-other"}))
    assert cache.keys(other).page("a") != keys.page("a")
    assert cache.keys(index).page("a") == keys.page("a")


def test_every_event_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "`glow_cache_events_total`" in line)
    named, more = re.findall(r"Cache events: (.*); with Redis also (.*)\.", row)[0]
    assert {*named.split(", ")} == set(EVENTS["local"])
    assert {*named.split(", "), *more.split(", ")} == set(EVENTS["local"]) | set(EVENTS["redis"])


# Concurrent callers for one key.


class Maker:
    """Makes a value when the test says so, and counts how often it was asked."""

    def __init__(self, *outcomes: bytes | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> bytes:
        """The next outcome, or the last for ever."""
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        await self.gate.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


async def start(flight: SingleFlight, maker: Maker, count: int) -> list[asyncio.Task[bytes]]:
    """Concurrent callers of one key; the first makes the value."""
    tasks = [asyncio.create_task(flight.run(b"key", maker)) for _ in range(count)]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@watched
async def test_callers_of_one_key_share_one_making_and_others_do_not_wait_for_them() -> None:
    flight, maker, fast = SingleFlight(), Maker(b"1", b"2"), Maker(b"fast")
    tasks = await start(flight, maker, 50)
    fast.gate.set()
    assert await flight.run(b"other", fast) == b"fast"
    maker.gate.set()
    assert await asyncio.gather(*tasks) == [b"1"] * 50
    assert maker.calls == 1 and not flight.flights
    assert await flight.run(b"key", maker) == b"2"  # it is not kept


@watched
async def test_an_error_is_every_waiting_callers_and_a_deadline_its_own_callers_alone() -> None:
    full, late = OverloadedError("full"), DeadlineError("late")
    for error, outcomes in ((full, [full, full, full]), (late, [late, b"value", b"value"])):
        flight, maker = SingleFlight(), Maker(error, b"value")
        tasks = await start(flight, maker, 3)
        maker.gate.set()
        assert await asyncio.gather(*tasks, return_exceptions=True) == outcomes
        assert await flight.run(b"key", maker) == b"value"


@pytest.mark.parametrize("leaving", [(0,), (2,), (0, 1, 2), (1, 0), (0, 1, 2, 3)])
@watched
async def test_callers_that_leave_harm_nobody(leaving: tuple[int, ...]) -> None:
    for pause in (
        settle,
        lambda: asyncio.sleep(0),
        None,
    ):  # also one after the other, before anyone could run
        flight, maker = SingleFlight(), Maker(b"value")
        tasks = await start(flight, maker, 4)
        for number in leaving:
            tasks[number].cancel()
            if pause is not None:
                await pause()
        await settle()
        maker.gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in found] == [
            n in leaving for n in range(4)
        ]
        assert {each for number, each in enumerate(found) if number not in leaving} <= {b"value"}
        assert not flight.flights


@pytest.mark.parametrize("outcome", [b"value", OverloadedError("full")])
@watched
async def test_a_caller_cancelled_in_the_moment_of_the_outcome_is_only_cancelled(
    outcome: bytes | Exception,
) -> None:
    flight, maker = SingleFlight(), Maker(outcome)
    tasks = await start(flight, maker, 2)
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())  # which has its outcome, and has not run yet
    maker.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found[0] == outcome and maker.calls == 1 and not flight.flights
