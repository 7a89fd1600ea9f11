"""Late interaction, by hand, by its definition, and to the bit."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index.late_interaction import CHUNK, MOST_NUMBERS, best_tokens, max_sim

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]
ROOT8 = 8**-0.5


def floats(*rows: list[float]) -> Floats:
    return np.array(rows, np.float32)


def bytes_of(*rows: int) -> Codes:
    return np.array(rows, np.uint8)[:, None]


def starts_of(*lengths: int) -> NDArray[np.int64]:
    return np.cumsum([0, *lengths[:-1]])


def some(lengths: list[int], size: int = 24, query: int = 5, seed: int = 0) -> tuple[Codes, Floats, Floats]:
    """Codes of rows, a query's tokens and their weights."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (sum(lengths), size // 8), dtype=np.uint8)
    tokens, weights = random.standard_normal((query, size)), random.random(query) + 0.01
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    return codes, tokens.astype(np.float32), (weights / weights.sum()).astype(np.float32)


FIRST = [1.0, 0, 0, 0, 0, 0, 0, 0]
LAST = [0.0, 0, 0, 0, 0, 0, 0, -1]
ALL = [ROOT8] * 8
ROWS = (0b11111111, 0b10000000, 0b01111110, 0b00000000)
"""Rows of one, two and one tokens: with all signs positive; the first alone, all but the first and the last; with none."""
GOLDENS = {
    "one token": ([FIRST], [1.0], [ROOT8, ROOT8, -ROOT8]),
    "of all numbers": ([ALL], [1.0], [1.0, 0.5, -1.0]),
    "two": ([FIRST, ALL], [0.25, 0.75], [0.25 * ROOT8 + 0.75, 0.25 * ROOT8 + 0.375, -0.25 * ROOT8 - 0.75]),
    "each answered by another": ([ALL, LAST], [0.5, 0.5], [0.5 - ROOT8 / 2, 0.25 + ROOT8 / 2, ROOT8 / 2 - 0.5]),
    "one that comes twice counts twice": ([ALL, ALL, FIRST], [0.25, 0.25, 0.5], [0.5 + ROOT8 / 2, 0.25 + ROOT8 / 2, -0.5 - ROOT8 / 2]),
    "padding, of weight 0": ([ALL, FIRST, [0.0] * 8], [1.0, 0.0, 0.0], [1.0, 0.5, -1.0]),
    "an empty query": ([], [], [0.0, 0.0, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize(("tokens", "weights", "expected"), GOLDENS.values(), ids=GOLDENS)
def test_scores_by_hand(tokens: list[list[float]], weights: list[float], expected: list[float]) -> None:
    query = np.array(tokens, np.float32).reshape(-1, 8)
    scores = max_sim(bytes_of(*ROWS), starts_of(1, 2, 1), query, np.array(weights, np.float32))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_a_token_that_comes_twice_in_a_row_changes_nothing() -> None:
    query, weights = floats(ALL, FIRST), floats([0.3, 0.7])[0]
    once = max_sim(bytes_of(0b11110000, 0b00001111), starts_of(2), query, weights)
    twice = max_sim(bytes_of(0b11110000, 0b00001111, 0b11110000), starts_of(3), query, weights)
    assert once.tobytes() == twice.tobytes()


def test_best_tokens_say_which_answered() -> None:
    places = np.array([7, 3, 9], np.uint16)
    answers = best_tokens(bytes_of(0b10000000, 0b01111110, 0b10000000), places, floats(FIRST, ALL, LAST))
    assert answers.places.tolist() == [7, 3, 7]  # the first among equals
    np.testing.assert_allclose(answers.similarities, [ROOT8, 0.5, ROOT8], atol=1e-4)
    nothing = best_tokens(bytes_of(1), places[:1], np.empty((0, 8), np.float32))
    assert nothing.places.shape == nothing.similarities.shape == (0,)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 2**16))
def test_best_tokens_and_scores_agree(lengths: list[int], seed: int) -> None:
    codes, tokens, weights = some(lengths, seed=seed)
    scores = max_sim(codes, starts_of(*lengths), tokens, weights)
    for row, (length, end) in enumerate(zip(lengths, np.cumsum(lengths), strict=True)):
        own = codes[end - length : end]
        answers = best_tokens(own, np.arange(length, dtype=np.uint16), tokens)
        assert scores[row] == pytest.approx(float(answers.similarities @ weights), abs=1e-6)
        alike = (2.0 * np.unpackbits(own, axis=1) - 1) @ tokens.T.astype(np.float64) / np.sqrt(24)
        np.testing.assert_allclose(answers.similarities, alike.max(0), atol=1e-4)
        np.testing.assert_allclose(alike[answers.places, np.arange(5)], alike.max(0), atol=1e-4)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=120),
    st.sampled_from([1, 2, 3, 12, 17]),
    st.integers(0, 2**16),
)
def test_a_row_has_equal_bits_whatever_it_is_scored_with(lengths: list[int], query: int, seed: int) -> None:
    """Alone, among others, in another order, and across the ends of chunks."""
    codes, tokens, weights = some(lengths, 96, query, seed)
    starts = starts_of(*lengths)
    whole = max_sim(codes, starts, tokens, weights)
    pieces = np.split(codes, starts[1:])
    order = np.random.default_rng(seed).permutation(len(lengths))[: 1 + seed % len(lengths)]
    some_of = max_sim(
        np.concatenate([pieces[row] for row in order]),
        starts_of(*(lengths[row] for row in order)),
        tokens,
        weights,
    )
    assert some_of.tobytes() == whole[order].tobytes()
    row = int(order[0])
    assert max_sim(pieces[row], starts_of(1), tokens, weights).tobytes() == whole[row].tobytes()


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7])
def test_chunks_end_anywhere(count: int) -> None:
    """A row that lies across the end of one finds the best of both sides."""
    lengths = [CHUNK - 3, count - CHUNK + 3]
    codes, tokens, weights = some(lengths, seed=count)
    found = max_sim(codes, starts_of(*lengths), tokens, weights)
    alike = (2.0 * np.unpackbits(codes, axis=1) - 1) @ tokens.T.astype(np.float64) / np.sqrt(24)
    expected = [part.max(0) @ weights for part in np.split(alike, [lengths[0]])]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("size", [8, 96, 384, MOST_NUMBERS])
def test_sums_lose_nothing(size: int) -> None:
    """Compared with whole numbers, at the largest sums that there can be: every number of a token is as large as its largest."""
    random = np.random.default_rng(size)
    signs = random.choice([-1, 1], (6, size))
    signs[0] = 1
    tokens = (signs * random.uniform(0.9, 1.0, (6, size)) / np.sqrt(size)).astype(np.float32)
    tokens[0] = np.float32(size**-0.5)
    codes = np.concatenate(
        [np.full((1, size // 8), 255, np.uint8), random.integers(0, 256, (40, size // 8), dtype=np.uint8)]
    )
    levels = np.abs(tokens).max(1).astype(np.float64) / 32767
    whole = np.rint(tokens / levels[:, None]).astype(np.int64)
    sums = (2 * np.unpackbits(codes, axis=1).astype(np.int64) - 1) @ whole.T
    for place in range(6):
        one = np.zeros(6, np.float32)
        one[place] = 1.0
        found = max_sim(codes, np.arange(41), tokens, one)
        expected = sums[:, place] * (levels[place] / np.sqrt(size))
        assert found.tobytes() == expected.astype(np.float32).tobytes()


def test_no_rows_have_no_scores() -> None:
    codes, tokens, weights = some([3])
    assert max_sim(codes[:0], np.empty(0, np.int64), tokens, weights).shape == (0,)


def test_tokens_of_another_size_are_refused() -> None:
    codes, _, weights = some([3])
    _, tokens, _ = some([3], 32)
    with pytest.raises(ValueError, match="matmul"):
        max_sim(codes, starts_of(3), tokens, weights)
    with pytest.raises(ValueError, match="matmul"):
        best_tokens(codes, np.zeros(3, np.uint16), tokens)


SCORES = """
import hashlib, sys
import numpy as np
from glow.index.late_interaction import max_sim
draw = np.random.default_rng(3)
codes = draw.integers(0, 256, (1500, 16), np.uint8)
starts = np.arange(0, 1500, 30)
tokens = draw.normal(size=(13, 128)).astype(np.float32)
tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
weights = np.full(13, 1 / 13, np.float32)
sys.stdout.write(hashlib.sha256(max_sim(codes, starts, tokens, weights).tobytes()).hexdigest())
"""


def test_every_processor_gives_the_same_bits() -> None:
    """The products of NumPy's library differ by processor; whole numbers leave them nothing to differ in."""
    found = set()
    for kind in ("", "Haswell", "Sandybridge", "Zen"):
        environment = {**os.environ, **({"OPENBLAS_CORETYPE": kind} if kind else {})}
        done = subprocess.run(
            [sys.executable, "-c", SCORES], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
