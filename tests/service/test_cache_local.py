"""The tier inside the process, and the two small parts that Redis stands behind: envelope and breaker."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow_service.cache.local import ENTRY_OVERHEAD_BYTES, LocalCache
from glow_service.redis.breaker import FAILURES_TO_OPEN, FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker
from glow_service.redis.envelope import ENVELOPE_BYTES, open_envelope, seal
from glow_service.telemetry.cache_events import TierEvents
from glow_service.telemetry.metrics import Metrics


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def make(
    entries: int = 3, size: int = 1 << 20, ttl_s: float = 60, clock: Clock | None = None
) -> tuple[LocalCache, Metrics]:
    metrics = Metrics()
    events = TierEvents(metrics, "local", "page")
    return LocalCache(entries, size, ttl_s, events, clock or Clock()), metrics


def count(metrics: Metrics, event: str) -> int:
    labels = {"tier": "local", "kind": "page", "event": event}
    return int(metrics.registry.get_sample_value("glow_cache_events_total", labels) or 0)


def test_a_stored_value_is_found_and_another_key_is_not() -> None:
    cache, metrics = make()
    cache.put(b"a", b"1")
    assert cache.get(b"a") == b"1"
    assert cache.get(b"b") is None
    assert [count(metrics, event) for event in ("store", "hit", "miss")] == [1, 1, 1]


def test_an_empty_value_is_a_value() -> None:
    cache, _ = make()
    cache.put(b"a", b"")
    assert cache.get(b"a") == b""


def test_what_was_used_longest_ago_makes_room() -> None:
    cache, metrics = make(entries=3)
    for key in (b"a", b"b", b"c"):
        cache.put(key, b"x")
    cache.get(b"a")
    cache.put(b"d", b"x")
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert count(metrics, "evict") == 1
    assert len(cache) == 3


def test_storing_again_replaces_and_counts_as_use() -> None:
    cache, metrics = make(entries=2)
    cache.put(b"a", b"1")
    cache.put(b"b", b"1")
    cache.put(b"a", b"22")
    cache.put(b"c", b"1")
    assert cache.get(b"a") == b"22"
    assert cache.get(b"b") is None
    assert count(metrics, "evict") == 1


def test_an_entry_goes_when_its_time_is_over_however_often_it_is_read() -> None:
    clock = Clock()
    cache, metrics = make(ttl_s=60, clock=clock)
    cache.put(b"a", b"1")
    for _ in range(5):
        clock.now += 11.9
        assert cache.get(b"a") == b"1"
    clock.now = 160.0
    assert cache.get(b"a") is None
    assert len(cache) == cache.size_bytes == 0
    assert count(metrics, "evict") == count(metrics, "miss") == 1


def test_bytes_bound_what_is_kept() -> None:
    size = 4 * (1_000 + ENTRY_OVERHEAD_BYTES)
    cache, metrics = make(entries=100, size=size)
    for number in range(20):
        cache.put(b"%d" % number, bytes(1_000))
        assert cache.size_bytes <= size
    assert len(cache) == 4
    assert count(metrics, "evict") == 16


def test_a_value_larger_than_everything_is_not_kept_and_costs_no_other_entry() -> None:
    cache, metrics = make(entries=100, size=10_000)
    cache.put(b"a", b"1")
    cache.put(b"b", bytes(10_001))
    assert cache.get(b"a") == b"1"
    assert cache.get(b"b") is None
    assert count(metrics, "skipped") == 1


def test_a_value_that_is_too_large_replaces_the_old_one_by_nothing() -> None:
    cache, _ = make(size=10_000)
    cache.put(b"a", b"old")
    cache.put(b"a", bytes(10_001))
    assert cache.get(b"a") is None


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.binary(max_size=600)), max_size=30))
def test_the_bytes_counted_are_the_bytes_kept(puts: list[tuple[bytes, bytes]]) -> None:
    cache, _ = make(entries=3, size=2_000)
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
    assert open_envelope(key, sealed) == value
    assert open_envelope(key + b"x", sealed) is None
    assert open_envelope(bytes(byte ^ 1 for byte in key), sealed) == (None if key else value)
    assert open_envelope(key, sealed[:-1]) is None
    assert open_envelope(key, sealed + b"x") is None
    assert open_envelope(key, value) is None


@pytest.mark.parametrize("position", range(ENVELOPE_BYTES + 5))
def test_an_envelope_with_one_changed_bit_is_refused(position: int) -> None:
    sealed = bytearray(seal(b"key", b"value"))
    sealed[position] ^= 1
    assert open_envelope(b"key", bytes(sealed)) is None


def test_bytes_cannot_move_between_key_and_value() -> None:
    sealed = seal(b"ab", b"c")
    assert open_envelope(b"a", sealed[:ENVELOPE_BYTES] + b"bc") is None


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
    assert breaker.take_probe()
    assert not breaker.take_probe()
    assert breaker.succeeded()
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
    assert breaker.is_open
    assert breaker.pause_s <= FIRST_PAUSE_S
