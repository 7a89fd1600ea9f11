"""The inverted index against a plain one in Python: scores, ties, filters, threads."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index import RowMask
from glow.index.postings import ImpactIndex, ImpactWriter
from glow.index.postings import impacts as postings_module

WORDS = [f"w{number:02}" for number in range(30)]
DOCUMENTS = 400
Matrix = NDArray[np.float32]


def write(
    folder: Path,
    matrix: Matrix,
    words: Sequence[str] = WORDS,
    chunk_postings: int = 97,
) -> ImpactIndex:
    """An index of a float32 [documents, words] matrix of impacts; zeros are no postings."""
    with ImpactWriter(folder, words, chunk_postings) as writer:
        for row in matrix:
            held = np.flatnonzero(row)
            writer.add(held.tolist(), row[held].tolist())
        writer.finish("bm25", lambda _words, _rows, values: values, {})
    return ImpactIndex.open(folder)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Impacts of few values, so that many scores tie; frequent words first. Codes of 8 bits hold them exactly."""
    generator = np.random.default_rng(0)
    held = generator.random((DOCUMENTS, len(WORDS))) < np.linspace(0.9, 0.004, len(WORDS))
    impacts = held * generator.choice([85, 170, 340], held.shape) / 64
    for word in range(len(WORDS)):
        impacts[np.flatnonzero(held[:, word])[:2], word] = (85 / 64, 340 / 64)[: held[:, word].sum()]
    return impacts.astype(np.float32)


@pytest.fixture(scope="module")
def index(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> ImpactIndex:
    return write(tmp_path_factory.mktemp("impacts"), matrix)


@pytest.fixture(scope="module")
def order() -> NDArray[np.uint32]:
    return np.random.default_rng(5).permutation(DOCUMENTS).astype(np.uint32)


def naive(
    matrix: Matrix, words: Sequence[str], k: int, allowed: NDArray[np.bool_], order: NDArray[np.uint32]
) -> tuple[list[float], list[int]]:
    """The definition: add up, drop zeros, sort by score and then by order (sums of halves are exact)."""
    scores = sum((matrix[:, WORDS.index(word)] for word in words if word in WORDS), np.zeros(len(matrix)))
    ranked = sorted(
        (-score, order[row], row) for row, score in enumerate(scores) if score > 0 and allowed[row]
    )
    return [-float(score) for score, _, _ in ranked[:k]], [row for _, _, row in ranked[:k]]


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(st.sampled_from([*WORDS, "absent", ""]), max_size=8),
    k=st.sampled_from([1, 2, 10, 57, DOCUMENTS, 2 * DOCUMENTS]),
    share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    dense=st.booleans(),
)
def test_a_search_is_the_plain_sum_sorted_with_ties_by_order(
    words: list[str],
    k: int,
    share: float,
    dense: bool,
    matrix: Matrix,
    index: ImpactIndex,
    order: NDArray[np.uint32],
) -> None:
    allowed = np.random.default_rng(3).random(DOCUMENTS) < share
    expected = naive(matrix, words, k, allowed, order)
    with pytest.MonkeyPatch.context() as patch:
        # Both ways to gather the candidates, whatever the size of the collection would choose.
        patch.setattr(postings_module, "DOCUMENTS_PER_POSTING", 10**9 if dense else 0)
        scores, rows = index.search(words, k, RowMask(allowed), order)
    assert (scores.tolist(), rows.tolist()) == expected
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)


def test_without_mask_and_order_all_are_allowed_and_rows_break_ties(
    matrix: Matrix, index: ImpactIndex
) -> None:
    rows = np.arange(DOCUMENTS, dtype=np.uint32)
    expected = naive(matrix, ["w00", "w20"], 25, np.ones(DOCUMENTS, np.bool_), rows)
    scores, found = index.search(["w00", "w20"], 25)
    assert (scores.tolist(), found.tolist()) == expected


def test_scores_of_given_rows_are_those_of_the_search_to_the_bit(tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).random((300, len(WORDS)), np.float32) * 7
    index = write(tmp_path, np.where(matrix > 3, matrix, 0))
    words = ["w03", "w01", "w03", "w17", "w08", "absent"]
    scores, rows = index.search(words, 300)
    assert index.score(words, rows).tolist() == scores.tolist()
    assert index.score(words[::-1], rows).tolist() == scores.tolist()
    absent = np.setdiff1d(np.arange(300), rows)
    assert not index.score(words, absent).any()


def test_what_words_add_makes_the_score(matrix: Matrix, index: ImpactIndex) -> None:
    rows = np.flatnonzero(matrix[:, 9] > 0)[::-1]
    found = index.by_word(["w00", "w09", "w29", "absent"], rows)
    assert found.tolist() == np.column_stack([matrix[rows][:, [0, 9, 29]], np.zeros(len(rows))]).tolist()
    words = ["w00", "w09", "w09", "w29", "absent"]
    assert (found @ [1, 2, 1, 1]).tolist() == index.score(words, rows).tolist()


def test_no_score_exceeds_the_bound_and_one_word_reaches_it(matrix: Matrix, index: ImpactIndex) -> None:
    words = ["w02", "w11", "w11", "absent"]
    assert index.bound(words) == matrix[:, 2].max() + 2 * matrix[:, 11].max()
    assert index.search(words, 1)[0][0] <= index.bound(words)
    assert index.search(["w02"], 1)[0][0] == index.bound(["w02"])
    assert index.bound(["absent"]) == index.bound([]) == 0.0


def test_a_search_leaves_nothing_behind_for_the_next(index: ImpactIndex) -> None:
    before = index.search(["w28"], 10)
    index.search(WORDS, 3)
    with pytest.raises(IndexError):
        index.search(["w00"], 3, RowMask(np.ones(20, np.bool_)))  # a mask of another collection
    after = index.search(["w28"], 10)
    assert [part.tolist() for part in after] == [part.tolist() for part in before]


def test_many_threads_search_as_one_does(index: ImpactIndex) -> None:
    queries = [[WORDS[i % 30], WORDS[(i * 7) % 30], "absent"] for i in range(200)]
    alone = [index.search(query, 5)[1].tolist() for query in queries]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda query: index.search(query, 5)[1].tolist(), queries))
    assert together == alone


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    for number, count in enumerate((0, 4)):
        matrix = np.zeros((count, 30), np.float32)
        index = write(tmp_path / str(number), matrix)
        assert len(index) == len(matrix)
        scores, rows = index.search(["w00"], 5)
        assert (scores.tolist(), rows.tolist()) == ([], [])
