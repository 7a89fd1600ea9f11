"""The cache in the process: its keys, what it keeps, and concurrent callers; `test_redis.py` has what processes share."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from cachetools import TTLCache
from hypothesis import given
from hypothesis import strategies as st

from glow.index import Fusion, FusionWeights, Index
from glow.index.columns.filters import And, Exists, Or
from glow.index.columns.masks import FacetRequest
from glow.index.vectors import SearchParams
from glow.search import Arrangement, FilterBoost, RecencyBoost, Reranking, SortKey, Synonyms
from glow.text.highlight import Highlighting
from glow_service.cache import Cache, Keys, SingleFlight
from glow_service.errors import DeadlineError, OverloadedError
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.telemetry.metrics import Metrics
from tests.service.asking import counts, watched

KEYS = Keys("m" * 64, "t" * 64, "v1")
PLAN = SearchPlan("how do bees find home", 10, 0, 100, SearchParams())
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates and NUL too


@given(TEXTS, TEXTS)
def test_vector_keys_are_equal_exactly_where_the_texts_are(one: str, other: str) -> None:
    assert (KEYS.vector(one) == KEYS.vector(other)) == (one == other)


def test_every_field_of_a_search_changes_its_page_key() -> None:
    changes: dict[str, tuple[Any, ...]] = {
        "text": ("how do bees find home ",),
        "top_k": (11,),
        "offset": (1,),
        "candidates": (101,),
        "params": (SearchParams(ef_search=96), SearchParams(nprobe=96), SearchParams(exact=True)),
        "retriever": ("hybrid",),
        "fusion": (Fusion(), Fusion(weights=FusionWeights(dense=1.0, lexical=0.0))),
        "filter": (And((Exists("a"), Exists("b"))), Or((Exists("a"), Exists("b")))),
        "facets": ((FacetRequest("a", 10),),),
        "highlight": (HighlightCall(("text",), Highlighting()),),
        "explain": (True,),
        "leave_one_out": (True,),
        "fields": (("title", "text"), ("text", "title"), ("title",)),
        "metadata": (("lang",),),
        "max_bytes": (1,),
        "may_cut": (True,),
        "typos": ("off",),
        "match": ("any",),
        "syntax": ("plain",),
        "prefix": (True,),
        "synonyms": (Synonyms((), "a"), Synonyms((), "b")),
        "source": ("browse",),
        "vector": ((1.0, 0.0),),
        "like": ("d1",),
        "arrangement": (
            Arrangement(min_score=0.5),
            Arrangement(sort=(SortKey("year", descending=True),)),
            Arrangement(boosts=(FilterBoost(Exists("a"), 2.0),)),
            Arrangement(boosts=(RecencyBoost("a", 1.0, 60.0, 0),)),
        ),
        "rerank": (Reranking(50), Reranking(49)),
        "vectors": (True,),
    }
    compared = {each.name for each in fields(SearchPlan) if each.compare}
    assert compared == set(changes), "a new field needs a line above"
    changed = [replace(PLAN, **{name: value}) for name, values in changes.items() for value in values]
    assert len({KEYS.page(plan) for plan in [PLAN, *changed]}) == len(changed) + 1
    assert KEYS.page(replace(PLAN, timeout_ms=5, allow_partial=True)) == KEYS.page(PLAN)
    assert {each.name for each in fields(SearchPlan) if each.repr} == compared
    assert len(KEYS.page(replace(PLAN, text="\ud800\0" + "x" * 100_000))) <= 64


def test_a_vector_key_depends_on_model_and_terms_alone_and_a_page_key_on_the_index_too(index: Index) -> None:
    others = [Keys("x" * 64, "t" * 64, "v1"), Keys("m" * 64, "x" * 64, "v1"), Keys("m" * 64, "t" * 64, "v2")]
    assert len({keys.page(PLAN) for keys in [KEYS, *others]}) == 4
    assert len({keys.vector("a") for keys in [KEYS, *others]}) == 3
    assert others[2].vector("a") == KEYS.vector("a")
    # An index that bears the same name is another one.
    twin = replace(index, manifest=index.manifest.model_copy(update={"created": "2000-01-01T00:00:00+00:00"}))
    cache, _ = make()
    keys = cache.keys(index)
    assert twin.version == index.version and cache.keys(index) is keys
    assert cache.keys(twin).page(PLAN) != keys.page(PLAN) == cache.keys(index).page(PLAN)
    assert cache.keys(twin).vector("a") == keys.vector("a")


# What is kept, and for how long.

KEY = b"glow:1:page:abc"


def make(**settings: Any) -> tuple[Cache, Metrics]:
    metrics = Metrics()
    return Cache(metrics, **{"entries": 10_000, **settings}), metrics


def maker(outcome: bytes | Exception) -> Callable[[], Awaitable[bytes]]:
    async def make_value() -> bytes:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return make_value


async def is_kept(cache: Cache, key: bytes) -> bool:
    try:
        await cache.response(key, maker(LookupError()))
    except LookupError:
        return False
    return True


@watched
async def test_a_response_is_made_once_for_its_key_and_errors_are_not_kept() -> None:
    cache, metrics = make()
    with pytest.raises(OverloadedError):
        await cache.response(KEY, maker(OverloadedError("full")))
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
    cache, metrics = make()
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
    assert counts(metrics, kind="vector") == {"store": 1, "hit": 1, "miss": 1}


# Concurrent callers for one key.


class Maker:
    """Makes a value when the test says so, and counts how often it was asked."""

    def __init__(self, *outcomes: bytes | Exception) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> bytes:
        """The next outcome, or the last for ever."""
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        await self.gate.wait()
        return await maker(outcome)()


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
    for pauses in (5, 1, 0):  # also one after the other, before anyone could run
        flight, maker = SingleFlight(), Maker(b"value")
        tasks = await start(flight, maker, 4)
        for number in leaving:
            tasks[number].cancel()
            for _ in range(pauses):
                await asyncio.sleep(0)
        await settle()
        maker.gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for number, each in enumerate(found):
            assert isinstance(each, asyncio.CancelledError) if number in leaving else each == b"value"
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
