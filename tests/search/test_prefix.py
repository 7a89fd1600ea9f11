"""Prefixes over a large vocabulary: the most frequent words that begin with one, in little time."""

import itertools
import string
import time

import numpy as np
import pytest

from glow.index.spelling import SpellingTable
from glow.storage import SortedStrings, largest_places

WORDS = sorted("".join(each) for each in itertools.product(string.ascii_lowercase[:16], repeat=5))
DFS = np.random.default_rng(1).zipf(1.5, len(WORDS)).clip(1, 10**6).astype(np.uint32)


@pytest.fixture(scope="module")
def table() -> SpellingTable:
    none = np.empty(0, np.uint32)
    return SpellingTable(SortedStrings.pack(word.encode() for word in WORDS), DFS, none, none)


def test_a_letter_over_a_million_words_takes_little_time(table: SpellingTable) -> None:
    assert len(WORDS) > 10**6
    seconds = []
    for prefix in ("a", "p", "abc", "abcd", "abcde", "q", ""):
        started = time.perf_counter()
        found = table.starting(prefix, 32)
        seconds.append(time.perf_counter() - started)
        wanted = sorted(
            (-df, word) for word, df in zip(WORDS, DFS.tolist(), strict=True) if word.startswith(prefix)
        )
        assert [(-df, word) for word, df in found.items()] == wanted[:32]
    assert sorted(seconds)[len(seconds) // 2] < 0.02


def test_a_prefix_with_a_typo_stands_for_those_one_edit_away(table: SpellingTable) -> None:
    found = table.nearly_starting("abzd", 10**6)
    assert found.keys() == {
        word
        for word in WORDS
        if word[0] == "a" and (word[:3] == "abd" or (word[:2] == "ab" and word[3] == "d"))
    }


@pytest.mark.parametrize("count", [0, 1, 63, 64, 5_000])
def test_the_largest_values_are_those_of_a_sort(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 9, count).astype(np.uint32)
    for most in (1, 5, 100):
        wanted = np.lexsort((np.arange(count), -values.astype(np.int64)))[:most]
        assert np.array_equal(largest_places(values, most), wanted)
