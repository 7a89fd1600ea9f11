"""Which tokens of a document share a code: groups, and what stands for each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index.late_interaction import encode_tokens, nearest, pool, stored_tokens
from glow.index.late_interaction import scoring as pooling
from glow.text import WeightedTokens


def unit(count: int, size: int = 16, kinds: int = 1000, seed: int = 0) -> NDArray[np.float32]:
    """Tokens of length 1, of so many different ones."""
    random = np.random.default_rng(seed)
    found = random.standard_normal((kinds, size))[random.integers(0, kinds, count)]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(1, 90), st.sampled_from([1, 2, 5, 1000]), st.integers(1, 60), st.integers(0, 2**16))
def test_groups_keep_the_budget_and_each_is_used(count: int, kinds: int, budget: int, seed: int) -> None:
    tokens = unit(count, kinds=kinds, seed=seed)
    label = pool(tokens, budget)
    groups, first = np.unique(label, return_index=True)
    assert label.shape == (count,)
    assert groups.tolist() == list(range(min(count, budget)))
    assert (np.diff(first) > 0).all()  # in the order of their first tokens
    assert pool(tokens, budget).tolist() == label.tolist()
    codes, leaders = encode_tokens(tokens, budget)
    assert codes.shape == (len(groups), 2)
    assert label[leaders].tolist() == groups.tolist()


@given(st.permutations(range(12)))
def test_equal_tokens_may_stand_in_any_order(order: list[int]) -> None:
    tokens = unit(12, kinds=4, seed=3)
    codes = [set(map(bytes, encode_tokens(each, 4)[0])) for each in (tokens, tokens[order])]
    assert codes[0] == codes[1]


def test_the_likest_are_merged_first() -> None:
    angles = np.deg2rad([0, 40, 43, 90, 91, 180])
    tokens = np.zeros((6, 8), np.float32)
    tokens[:, 0], tokens[:, 1] = np.cos(angles), np.sin(angles)
    assert pool(tokens, 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert pool(tokens, 5).tolist() == [0, 1, 2, 3, 3, 4]
    assert pool(tokens, 4).tolist() == [0, 1, 1, 2, 2, 3]
    # Now groups at 0, 41.5, 90.5 and 180 degrees: the first two are nearest to each other.
    assert pool(tokens, 3).tolist() == [0, 0, 0, 1, 1, 2]


def test_a_group_of_many_counts_as_many() -> None:
    """The mean of its tokens is compared, not that of what was merged."""
    angles = np.deg2rad([0, 0, 0, 20, 57, 107])
    tokens = np.zeros((6, 8), np.float32)
    tokens[:, 0], tokens[:, 1] = np.cos(angles), np.sin(angles)
    assert pool(tokens, 3).tolist() == [0, 0, 0, 0, 1, 2]
    # The first four lie at 5 degrees, 52 from the fifth, which is 50 from the last; at 10 they would be nearer.
    assert pool(tokens, 2).tolist() == [0, 0, 0, 0, 1, 1]
    partner, alike = nearest(np.array([tokens[:4].sum(0), tokens[4], tokens[5]]))
    assert partner.tolist() == [1, 2, 1]
    assert np.rad2deg(np.arccos(alike[0])) == pytest.approx(52.0, abs=0.2)


def test_a_ring_of_equals_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """If rounding makes each the nearest of the one before, nobody is mutual."""

    def ring(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return np.roll(np.arange(len(sums)), -1), np.ones(len(sums), np.float32)

    monkeypatch.setattr(pooling, "nearest", ring)
    assert pool(unit(7), 3).tolist() == [0, 0, 0, 0, 0, 1, 2]


def test_codes_are_signs_of_the_mean_and_the_nearest_token_stands_for_it() -> None:
    tokens = np.array(
        [
            [1, 0, 0, 0, 0, 0, 0, 0],
            [0, -1, 0, 0, 0, 0, 0, 0],
            [0.6, 0.8, 0, 0, 0, 0, 0, 0],
            [0.8, 0.6, 0, 0, 0, 0, 0, 0],
        ],
        np.float32,
    )
    assert pool(tokens, 2).tolist() == [0, 1, 0, 0]
    codes, leaders = encode_tokens(tokens, 2)
    # Bits from the left, 1 for at least 0: of the sums (2.4, 1.4, 0, ...) and (0, -1, 0, ...).
    assert codes.tolist() == [[0b11111111], [0b10111111]]
    assert leaders.tolist() == [3, 1]
    codes, leaders = encode_tokens(tokens[[0, 0, 1, 1]], 2)
    assert leaders.tolist() == [0, 2]  # the first among equals
    assert codes.tolist() == [[0b11111111], [0b10111111]]
    assert encode_tokens(-tokens, 4)[0].tolist() == [[0b01111111], [0b11111111], [0b00111111], [0b00111111]]


@pytest.mark.parametrize(
    ("words", "places"),
    [([-1, 0, 0, 1, -1], [1, 2, 3]), ([-1, -1], [0]), ([-1, 0, 1, 2, -1, 3], [1, 2, 3, 5])],
)
def test_words_are_stored_or_else_the_first_token(words: list[int], places: list[int]) -> None:
    nothing = np.zeros(len(words), np.int64)
    weights, texts = nothing.astype(np.float32), ("a", "b", "c", "d")
    sequence = WeightedTokens(nothing, nothing, np.array(words), weights, texts, {})
    assert stored_tokens(sequence).tolist() == places
