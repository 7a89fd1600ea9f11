"""How much of a query a document holds, and what that does to hybrid search."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index import DEFAULT_FUSION
from glow.search import fuse_rankings, uncertainty
from glow.search.hybrid import coverage_scorer

IDF: Mapping[str, float] = {"bees": 3.0, "honey": 2.0, "home": 1.0, "zyzzyva": 4.0}
HELD = ({"bees", "honey"}, {"home"}, set(), {"bees", "honey", "home"})
ROWS = np.arange(4)


class Words:
    """Documents of `HELD`; any other word is in none."""

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """As `ImpactIndex.by_word`."""
        found = [[word in HELD[row] for word in words] for row in rows.tolist()]
        return np.array(found, np.float32)


def covered(*words: str) -> list[float]:
    score = coverage_scorer(Words(), words, lambda word: IDF.get(word, 0.5))  # type: ignore[arg-type]  # what is asked of it
    together = score(ROWS)
    assert [score(ROWS[[row]])[0] for row in ROWS] == together.tolist()
    return [float(each) for each in together]


def test_the_share_of_the_querys_idf() -> None:
    assert covered("bees", "home") == pytest.approx([0.75, 0.25, 0.0, 1.0])
    assert covered("bees", "bees", "home") == pytest.approx([6 / 7, 1 / 7, 0.0, 1.0])
    assert covered("bees", "zyzzyva") == pytest.approx([3 / 7, 0.0, 0.0, 3 / 7])


def test_stop_words_and_punctuation_count_nothing_and_a_query_of_them_changes_nothing() -> None:
    assert covered("the", "bees", "?") == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert covered("the", "?") == covered() == [1.0] * 4


def test_it_counts_less_in_a_long_question() -> None:
    words = ["bees", *["home"] * 15]
    assert covered(*words)[0] == pytest.approx((3 / 18) ** 0.5)


def test_lexical_scores_count_by_it_and_stay_what_they_are() -> None:
    dense = np.array([0.5, 0.4], np.float32), np.array([0, 1])
    lexical = np.array([4.0, 2.0], np.float32), np.array([1, 0])
    share = np.array([1.0, 0.25], np.float32)
    fused = fuse_rankings(
        DEFAULT_FUSION, dense, lexical, lexical_scale=4.0, score_covered=lambda rows: share[rows]
    )
    open_by = uncertainty(dense[0])
    expected = {0: 0.55 * 0.5 + 0.45 * open_by * 0.5, 1: 0.55 * 0.4 + 0.45 * open_by * 1.0 * 0.25}
    assert dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert dict(zip(fused.rows.tolist(), fused.parts["lexical"].tolist(), strict=True)) == {0: 2.0, 1: 4.0}
