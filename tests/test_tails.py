"""The simulation of scatter and gather against what can be known without it."""

import numpy as np
import pytest

from research.scale.tails import simulate

EVEN = np.full(10, 5.0)
UNEVEN = np.concatenate([np.full(98, 5.0), np.full(2, 100.0)])


def test_an_idle_shard_of_even_times_answers_in_that_time() -> None:
    found = simulate(EVEN, 4, 2, 0.001, hedged=False, searches=2_000)
    assert found["p50"] == found["p99"] == 5.0 and found["extra"] == 0


def test_more_shards_meet_the_slow_answers_more_often() -> None:
    """With n shards a search is slow with probability 1 - .98^n: at 50 shards most are."""
    slow = [simulate(UNEVEN, shards, 4, 0.01, hedged=False, searches=4_000)["p50"] for shards in (1, 20, 50)]
    assert slow[0] == pytest.approx(5.0, abs=1) and slow[1] < 100 <= slow[2]


def test_queues_grow_with_the_load() -> None:
    p99 = [simulate(EVEN, 1, 1, load, hedged=False)["p99"] for load in (0.1, 0.5, 0.9)]
    assert p99[0] < p99[1] < p99[2]
    mean_wait = 0.5 / (2 * (1 - 0.5)) * 5.0  # M/D/1 at half load: Pollaczek and Khinchine
    assert simulate(EVEN, 1, 1, 0.5, hedged=False)["p50"] < 5.0 + 2 * mean_wait


def test_hedging_cuts_the_tail_for_few_more_requests_and_needs_a_replica() -> None:
    plain, hedged = (simulate(UNEVEN, 20, 3, 0.1, hedged=hedged, searches=5_000) for hedged in (False, True))
    assert hedged["p95"] < plain["p95"] / 2 and hedged["p99"] < plain["p99"] and hedged["extra"] < 0.15
    alone = [simulate(UNEVEN, 20, 1, 0.1, hedged=hedged, searches=2_000) for hedged in (False, True)]
    assert alone[0] == alone[1]


def test_the_same_seed_gives_the_same_figures() -> None:
    assert simulate(UNEVEN, 4, 2, 0.5, hedged=True, searches=500) == simulate(
        UNEVEN, 4, 2, 0.5, hedged=True, searches=500
    )
