"""Token buckets, on a clock of the test's own."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow_service.access.rate_limit import RateLimiter, client_of


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1e6) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_a_full_bucket_gives_its_burst_then_one_for_each_interval() -> None:
    clock = Clock()
    limiter = RateLimiter(rate=2.0, burst=3, max_clients=10, clock=clock)
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 1]
    clock.now += 0.5
    assert [limiter.take("a") for _ in range(2)] == [0, 1]
    clock.now += 1_000
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 1]


def test_the_wait_is_rounded_up_to_whole_seconds() -> None:
    clock = Clock()
    limiter = RateLimiter(rate=0.4, burst=1, max_clients=10, clock=clock)
    assert [limiter.take("a"), limiter.take("a")] == [0, 3]
    clock.now += 1.0
    assert limiter.take("a") == 2
    clock.now += 1.4
    assert limiter.take("a") == 1


def test_rounding_does_not_cost_a_client_its_turn() -> None:
    clock = Clock(2.055)  # (2.055 + 2.0) - 2.055 is less than 2
    limiter = RateLimiter(rate=0.5, burst=1, max_clients=10, clock=clock)
    assert [limiter.take("a"), limiter.take("a")] == [0, 2]
    clock.now += 2.0
    assert limiter.take("a") == 0


rates = st.floats(0.001, 1_000)
pauses = st.lists(st.floats(0, 20), max_size=40)


@given(rates, st.integers(1, 20), st.floats(0, 1e9), pauses)
def test_who_waits_as_told_is_let_in(rate: float, burst: int, start: float, steps: list[float]) -> None:
    clock = Clock(start)
    limiter = RateLimiter(rate, burst, max_clients=10, clock=clock)
    for step in steps:
        clock.now += step
        if wait_s := limiter.take("a"):
            clock.now += wait_s
            assert limiter.take("a") == 0


@given(rates, st.integers(1, 20), pauses)
def test_no_more_are_let_in_than_burst_and_rate_allow(rate: float, burst: int, steps: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, burst, max_clients=10, clock=clock)
    passed = 0
    for step in steps:
        clock.now += step
        passed += limiter.take("a") == 0
    allowed = burst + (clock.now - 1e6) * rate
    assert passed <= math.floor(allowed + 1e-3)


def test_clients_do_not_share_a_bucket() -> None:
    limiter = RateLimiter(rate=1.0, burst=1, max_clients=10, clock=Clock())
    assert [limiter.take(client) for client in "aabb"] == [0, 1, 0, 1]


def test_the_client_that_was_idle_longest_is_forgotten_first() -> None:
    clock = Clock()
    limiter = RateLimiter(rate=0.001, burst=1, max_clients=3, clock=clock)
    for client in "abc":
        limiter.take(client)
    assert limiter.take("a") > 0  # a is in use again, so b is now the idlest
    assert limiter.take("d") == 0
    assert len(limiter) == 3
    assert [limiter.take(client) > 0 for client in "acd"] == [True, True, True]
    assert limiter.take("b") == 0


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002::/64"),
        ("2001:db8:1:2::9", "20010db800010002::/64"),
        ("fe80::1%eth0", "fe80000000000000::/64"),
        ("unknown", "unknown"),
        ("not:an\0address", "not:an\0address"),
        ("1.2.3.4:99999", "1.2.3.4:99999"),
        ("", ""),
    ],
)
def test_who_counts_as_one_client(host: str, client: str) -> None:
    assert client_of(host) == client


@pytest.mark.parametrize("host", ["x" * 60_000, ":" * 60_000, "é:" * 30_000])
def test_what_a_proxy_calls_an_address_cannot_fill_the_memory(host: str) -> None:
    assert len(client_of(host)) <= 64
