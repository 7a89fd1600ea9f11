"""What matches is what a plain look at every document says, alone, in segments, and among candidates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index import RowMask
from glow.index.postings import ImpactsView
from glow.search.hybrid import lexical_share
from glow.search.matches import SOME, WordMatching
from glow.search.query import Others

WORDS = ("pump", "seal", "valve", "hose")
IDF = {"pump": 1.0, "seal": 2.5, "valve": 2.5, "hose": 4.0, "clamp": 3.0}


class Impacts:
    """Words of some documents, as an inverted index tells them."""

    is_remote = False

    def __init__(self, documents: list[set[str]]) -> None:
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def rows_with(self, word: str) -> NDArray[np.int64]:
        return np.array([row for row, held in enumerate(self.documents) if word in held], np.int64)

    def holds(self, word: str) -> bool:
        return any(word in held for held in self.documents)

    def by_word(self, words: list[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        table = [[float(word in self.documents[row]) for word in words] for row in rows.tolist()]
        return np.array(table, np.float32).reshape(len(rows), len(words))


def expected(
    documents: list[set[str]], words: list[str], known: list[str], match: str, others: Others
) -> set[int]:
    """Rows that match through words."""

    def holds(held: set[str], word: str) -> bool:
        return word in held or any(set(other) <= held for other in others.get(word, ()))

    covered = [{word for word in words if holds(held, word)} for held in documents]
    if match == "any":
        return {row for row, held in enumerate(covered) if held}
    whole = {row for row, held in enumerate(covered) if held == set(words)}
    if whole or match == "all":
        return whole
    needed = SOME * sum(IDF[word] for word in known) - 1e-9
    sums = [sum(IDF[word] for word in held) for held in covered]
    return {row for row, total in enumerate(sums) if total and total >= needed}


@given(
    documents=st.lists(st.sets(st.sampled_from([*WORDS, "clamp", "grip"])), min_size=1, max_size=40),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True),
    match=st.sampled_from(("auto", "all", "any")),
    others=st.sampled_from(({}, {"hose": (("clamp",), ("grip", "seal"))})),
    kept=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_matches_are_those_of_every_document(
    documents: list[set[str]], words: list[str], match: str, others: Others, kept: list[bool]
) -> None:
    impacts: ImpactsView = Impacts(documents)  # type: ignore[assignment]  # what is asked of it
    asked = WordMatching(words, IDF.__getitem__, match, others)  # type: ignore[arg-type]  # one of the three
    none = np.empty(0, np.float32), np.empty(0, np.int64)
    mask = np.array(kept[: len(documents)])
    rows = np.flatnonzero(mask)
    allowed = [documents[row] for row in rows.tolist()]
    known = [word for word in words if impacts.holds(word) or word in others]
    wanted = {int(rows[place]) for place in expected(allowed, words, known, match, others)}
    every = asked.everywhere(impacts, none, 0.0, RowMask(mask.copy()))
    assert set(every.rows.tolist()) == wanted and every.similar == 0
    pool = asked.among(impacts, rows, none, 0.0, is_whole=True)
    assert set(pool.rows.tolist()) == wanted and pool.words == every.words


@pytest.mark.parametrize(
    ("words", "cosines", "nearest", "similar"),
    [
        (
            ["pump"],
            [0.62, 0.5, 0.36],
            0.65,
            1,
        ),  # keywords that a document holds: nearly as near as the nearest
        (["pump", "wrench"], [0.62, 0.33, 0.31], 0.65, 2),  # not all words: half as near
        (["wrench"], [0.36, 0.34, 0.2], 0.36, 1),  # an unknown keyword: not whatever comes first
        (["a", "pump"], [0.62, 0.5, 0.31], 0.65, 2),  # a phrase of a sentence
        (["what", "is", "a", "wrench", "?"], [0.36, 0.21, 0.19], 0.36, 2),
    ],
)
def test_neighbors_match_if_they_are_near(
    words: list[str], cosines: list[float], nearest: float, similar: int
) -> None:
    impacts: ImpactsView = Impacts([{"pump"}, {"seal"}, {"valve"}, {"hose"}])  # type: ignore[assignment]
    near = np.array(cosines, np.float32), np.array([1, 2, 3])
    asked = WordMatching(words, lambda word: 1.0, "auto", {})
    assert asked.everywhere(impacts, near, nearest, None).similar == similar


@pytest.mark.parametrize(
    ("text", "share"),
    [("can opener", 1.0), ("may 2024", 1.0), ("who guidelines", 1.0), ("who wrote it", 0.3), ("can bees see red", 0.3),
     ("bees sleep ?", 0.3), ("SKU-00135", 8.0), ("zz1033", 8.0), ("route 66", 1.0)],
)  # fmt: skip
def test_questions_and_part_numbers_are_told_by_their_text(text: str, share: float) -> None:
    assert lexical_share(text.lower().split(), text) == share
