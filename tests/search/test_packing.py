"""Packed lists hold what was packed, find what is in them, and a search that skips finds what one over all postings finds."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index import RowMask
from glow.index.learned_sparse import LearnedImpacts
from glow.index.postings import (
    IMPACTS_HEADER,
    PACKED_FILE,
    PLACES_FILE,
    WIDTHS_FILE,
    ImpactIndex,
    ImpactWriter,
    PackedList,
    PackedPostings,
    pack_codes,
    pack_lists,
    pack_postings,
    packed_sizes,
    packing,
    width_of,
)

Rows = NDArray[np.uint32]
VOCABULARY = [f"w{number:03}" for number in range(60)]
DOCUMENTS = 60_000


def packed_of(rows: Rows, codes: NDArray[np.uint8], documents: int) -> PackedPostings:
    width = width_of(len(rows), documents)
    data = pack_postings(rows, codes, documents, width)
    sizes, _ = packed_sizes(np.array([len(rows)]), np.array([width], np.uint8), documents)
    assert len(data) == sizes[0]
    return PackedPostings(data, len(rows), documents, width)


@settings(max_examples=150, deadline=None)
@given(
    documents=st.sampled_from([1, 2, 7, 127, 128, 129, 5_000, 70_000, 2**32 - 1]),
    count=st.integers(1, 3_000),
    clustered=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_list_is_what_was_packed_and_finds_what_it_holds(
    documents: int, count: int, clustered: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    reach = max(documents // 50, 1) if clustered else documents  # many rows in few blocks
    rows = np.unique(generator.integers(documents - reach, documents, count)).astype(np.uint32)
    codes = generator.integers(1, 256, len(rows)).astype(np.uint8)
    some = generator.integers(0, documents, 40)
    asked = np.unique(np.concatenate([some, rows[:: max(len(rows) // 7, 1)], rows[-1:]])).astype(np.uint32)
    expected = np.flatnonzero(np.isin(asked, rows))
    for read_all_from in (0, 10**9):  # block by block wherever that can be, and never
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packing, "READ_ALL_FROM", read_all_from)
            packed = packed_of(rows, codes, documents)
            here, places = packed.find(asked)
            assert here.tolist() == expected.tolist()
            assert rows[places].tolist() == asked[here].tolist()
            near = packed.block_codes(asked)
            assert near is None or (near[here] >= codes[places]).all()
            assert packed.rows.tolist() == rows.tolist() and packed.codes.tolist() == codes.tolist()


@pytest.mark.parametrize("distance", [2, 64, 1_000, 60_000])
def test_rows_take_two_bits_more_than_their_distance(distance: int) -> None:
    count = 20_000
    rows = np.unique(np.random.default_rng(0).integers(0, count * distance, count)).astype(np.uint32)
    packed = packed_of(rows, np.ones(len(rows), np.uint8), count * distance)
    bits = 8 * (len(packed.data) / len(rows) - 1)
    assert bits <= np.log2(count * distance / len(rows)) + 2.4  # maxima and directory are a third of a bit


def zipf_index(folder: Path, *, packed: bool) -> ImpactIndex:
    """Words from nearly everywhere to a few documents each, with impacts like BM25's: rarer words count for more."""
    generator = np.random.default_rng(4)
    shares = 0.7 / np.arange(1, len(VOCABULARY) + 1) ** 1.5
    lists = [np.flatnonzero(generator.random(DOCUMENTS) < share) for share in shares]
    idf = np.log(DOCUMENTS / np.array([max(len(rows), 1) for rows in lists]))
    owners = np.concatenate(lists)
    words = np.repeat(np.arange(len(lists)), [len(rows) for rows in lists])
    impacts = (idf[words] * generator.gamma(2.0, 0.4, len(words)) + 0.01).astype(np.float32)
    order = np.lexsort((words, owners))
    bounds = np.searchsorted(owners[order], np.arange(DOCUMENTS + 1)).tolist()
    with ImpactWriter(folder, VOCABULARY) as writer:
        for start, stop in pairwise(bounds):
            held = order[start:stop]
            writer.add(words[held].tolist(), impacts[held].tolist())
        header = writer.finish("bm25", lambda _words, _rows, values: values, {})
    if packed:
        assert pack_lists(folder, header).layout == "packed"
    return ImpactIndex.open(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ImpactIndex:
    return zipf_index(tmp_path_factory.mktemp("plain"), packed=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packed")


@pytest.fixture(scope="module")
def packed(folder: Path) -> ImpactIndex:
    return zipf_index(folder, packed=True)


def queries(count: int) -> list[list[str]]:
    generator = np.random.default_rng(1)
    return [generator.choice(VOCABULARY, generator.integers(1, 7)).tolist() for _ in range(count)]


def everything(index: ImpactIndex, words: Sequence[str]) -> NDArray[np.float32]:
    """The score of every document, added in the order of the vocabulary."""
    return index.score(words, np.arange(DOCUMENTS))


@pytest.mark.parametrize("k", [1, 10, 300])
@pytest.mark.parametrize("read_all_from", [0, 3])
def test_skipping_changes_no_ranking(
    packed: ImpactIndex, k: int, read_all_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "READ_ALL_FROM", read_all_from)
    order = np.random.default_rng(2).permutation(DOCUMENTS).astype(np.uint32)
    mask = RowMask(np.random.default_rng(3).random(DOCUMENTS) < 0.4)
    for words in queries(60):
        for allowed in (None, mask):
            scores = everything(packed, words)
            if allowed is not None:
                scores = np.where(allowed.mask, scores, 0)
            ranked = np.lexsort((order, -scores))[:k]
            expected = ranked[scores[ranked] > 0]
            found, rows = packed.search(words, k, allowed, order)
            assert rows.tolist() == expected.tolist()
            assert found.tolist() == scores[expected].tolist()


def test_a_long_list_that_cannot_matter_is_not_decoded(packed: ImpactIndex) -> None:
    lists = [each for each in packed.lists(["w000", "w001", "w055"]) if isinstance(each, PackedList)]
    packed._sums.search(lists, 3)
    decoded = ["rows" in each.packed.__dict__ for each in lists]
    assert decoded == [False, False, True]


def test_learned_impacts_beside_packed_ones_are_those_of_all_postings(
    packed: ImpactIndex, tmp_path: Path
) -> None:
    """Plain lists of codes and packed ones in one search."""
    generator = np.random.default_rng(7)
    held = generator.random((DOCUMENTS, len(VOCABULARY)), np.float32) < np.linspace(
        0.2, 0.0005, len(VOCABULARY)
    )
    with ImpactWriter(tmp_path, VOCABULARY) as writer:
        for row in held:
            words = np.flatnonzero(row)
            codes = generator.integers(1, 256, len(words)).astype(np.uint8)
            writer.add(words.tolist(), pack_codes(codes, np.zeros(len(words), np.uint8)).tolist())
        writer.finish("learned", lambda _words, _rows, values: values, {"unit": 0.02, "budget": 60.0})
    both = LearnedImpacts(packed, ImpactIndex.open(tmp_path), 0.8)
    every = np.arange(DOCUMENTS)
    for words in queries(25):
        scores = both.score(words, every)
        expected = np.lexsort((every, -scores))[:10]
        found, rows = both.search(words, 10)
        assert rows.tolist() == expected[scores[expected] > 0].tolist()
        assert found.tolist() == scores[rows].tolist()


def test_a_document_may_overtake_by_several_long_lists_together(tmp_path: Path) -> None:
    """Ten documents have 10 of a rare word, ten others 7 and then 2 of each frequent word: 11."""
    with ImpactWriter(tmp_path, ["a", "b", "rare"]) as writer:
        for row in range(5_000):
            impacts = {2: 10.0} if row < 10 else {0: 2.0, 1: 2.0, 2: 7.0} if row < 20 else {0: 2.0, 1: 2.0}
            writer.add(list(impacts), list(impacts.values()))
        header = writer.finish("bm25", lambda _words, _rows, values: values, {})
    pack_lists(tmp_path, header)
    scores, rows = ImpactIndex.open(tmp_path).search(["a", "b", "rare"], 10)
    assert rows.tolist() == list(range(10, 20)) and scores.tolist() == [11.0] * 10


def test_eight_bits_rank_as_floats_do(plain: ImpactIndex, packed: ImpactIndex) -> None:
    same = [
        len(np.intersect1d(plain.search(words, 10)[1], packed.search(words, 10)[1])) / 10
        for words in queries(200)
    ]
    assert (
        np.mean(same) >= 0.98
    )  # the bar, .99 of the first ten of real text, is measured in docs/results/scale.md
    assert packed.largest == plain.largest and packed.bound(["w001"]) == plain.bound(["w001"])


def test_it_holds_the_words_postings_and_largest_impacts_of_the_plain_one(
    plain: ImpactIndex, packed: ImpactIndex
) -> None:
    assert list(packed.word_counts()) == list(plain.word_counts())
    for ours, theirs in zip(packed.blocks(10_000), plain.blocks(10**9), strict=False):
        size = len(ours.words)
        assert (ours.words == theirs.words[:size]).all() and (ours.rows == theirs.rows[:size]).all()
    some = RowMask(np.arange(DOCUMENTS) % 3 == 0)
    assert packed.largest_of(some) == pytest.approx(plain.largest_of(some), rel=0.01)
    assert packed.cause("w001", 4) is None


def test_a_posting_takes_a_third_of_the_bytes(folder: Path, packed: ImpactIndex) -> None:
    assert (folder / PACKED_FILE).stat().st_size / packed.header.postings < 2.5
    assert not (folder / "rows.npy").exists()


@pytest.mark.parametrize(
    ("name", "what"),
    [(WIDTHS_FILE, "width beyond 32"), (PLACES_FILE, "not the bytes"), (PACKED_FILE, "expected")],
)
def test_a_file_that_does_not_fit_is_refused_by_name(
    folder: Path, packed: ImpactIndex, name: str, what: str, tmp_path: Path
) -> None:
    del packed
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    values = np.load(tmp_path / name).copy()
    np.save(
        tmp_path / name, values[:-1] if name == PACKED_FILE else np.where(values > 0, values + 64, values)
    )
    with pytest.raises(FormatError, match=f"(?s){name}.*{what}"):
        ImpactIndex.open(tmp_path)


def test_damage_inside_a_list_is_told_when_it_is_read(
    folder: Path, packed: ImpactIndex, tmp_path: Path
) -> None:
    """Checksums find it before; this is the net under them."""
    del packed
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    values = np.load(tmp_path / PACKED_FILE)
    np.save(tmp_path / PACKED_FILE, np.zeros_like(values))
    broken = ImpactIndex.open(tmp_path)
    with pytest.raises(FormatError, match="holds 0; rebuild"):
        broken.search(["w001"], 3)


def test_learned_impacts_are_not_packed(folder: Path, packed: ImpactIndex, tmp_path: Path) -> None:
    del packed
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    header = (tmp_path / IMPACTS_HEADER).read_text().replace('"bm25"', '"learned"')
    (tmp_path / IMPACTS_HEADER).write_text(
        header.replace('"parameters": {}', '"parameters": {"unit": 1, "budget": 1}')
    )
    with pytest.raises(FormatError, match=r"impacts\.json"):
        ImpactIndex.open(tmp_path)
