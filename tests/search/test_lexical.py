"""The words of an index on disk: BM25, searches, files that are the same whatever the chunks and refused when damaged."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import log
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index import RowMask
from glow.index.postings import (
    CODES_FILE,
    IMPACTS_FILES,
    LEARNED_FILES,
    VALUES_FILE,
    Bm25,
    ImpactIndex,
    ImpactWriter,
    Vocabulary,
    build_lexical,
    pack_codes,
)
from glow.index.postings import impacts as postings_module
from glow.storage import new_array
from glow.text import Analyzer, AnalyzerName, CorpusCounter, TermCounter, TermTable, is_lexical


@given(words=st.sets(st.text(min_size=1, max_size=80)), other=st.text(max_size=80))
def test_each_word_has_its_row_and_no_other(words: set[str], other: str, tmp_path_factory: "object") -> None:
    folder: Path = tmp_path_factory.mktemp("words")  # type: ignore[attr-defined]
    ranked = sorted(words, key=lambda word: word.encode("utf-8", "replace"))
    Vocabulary.save(folder, ranked)
    vocabulary = Vocabulary.load(folder)
    assert len(vocabulary) == len(ranked)
    assert [vocabulary.row(word) for word in ranked] == list(range(len(ranked)))
    assert [vocabulary.word(row) for row in range(len(ranked))] == ranked
    assert (vocabulary.row(other) >= 0) == (other in words)


STEMS = (
    "walk paint direct connect consist generat relat form depend secur happen find index search file".split()
)
ENDINGS = ("", "s", "ed", "ing", "ion", "ings")
STOPPED = ["the", "being", "of"]


def corpus() -> list[list[str]]:
    generator = np.random.default_rng(0)
    words = [stem + ending for stem in STEMS for ending in ENDINGS] + STOPPED
    return [generator.choice(words, generator.integers(3, 40)).tolist() for _ in range(200)]


def build(
    folder: Path, documents: list[list[str]], bm25: Bm25 | None = None, analyzer: AnalyzerName = "english"
) -> ImpactIndex:
    made = Analyzer(analyzer)
    counter = CorpusCounter(made)
    for document in documents:
        counter.add({"text": document})
    words, terms, _ = counter.tables()
    build_lexical(folder, documents, words, terms, bm25, analyzer=made, chunk_postings=1000)
    return ImpactIndex.open(folder)


@pytest.mark.parametrize("analyzer", ["plain", "english"])
def test_scores_are_those_of_bm25s_on_the_same_terms(tmp_path: Path, analyzer: AnalyzerName) -> None:
    documents = corpus()
    index = build(tmp_path, documents, Bm25(0.9, 0.4), analyzer)

    def terms(words: Sequence[str]) -> list[str]:
        lexical = [word for word in words if is_lexical(word)]
        return Stemmer.Stemmer("english").stemWords(lexical) if analyzer == "english" else lexical

    tokens = [terms(document) for document in documents]
    reference = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    reference.index(tokens, show_progress=False)
    assert index.header.words == len(set().union(*tokens)) + len(STOPPED)
    for start in range(0, len(STEMS) - 3):
        query = [stem + ENDINGS[start % len(ENDINGS)] for stem in STEMS[start : start + 3]]
        expected = reference.get_scores(terms(query))
        assert index.score(query, np.arange(200)) == pytest.approx(expected, rel=1e-5)


def test_a_query_of_stop_words_alone_finds_them_and_no_word_of_their_stem(tmp_path: Path) -> None:
    index = build(tmp_path, [["wills", "testament"], ["owls", "will"], [",", "the", "the"]])
    found = {
        "wills": [0], "will": [1], "will owls": [1], "will wills": [0], "the the": [2], ", the": [2], "of": [], ",": [],
    }  # fmt: skip
    assert {query: index.search(query.split(), 5)[1].tolist() for query in found} == found
    twice = index.bound(["the", "the"])
    assert twice == 2 * index.bound(["the"]) == index.score(["the", "the"], np.array([2]))[0]
    assert index.holds("will") and not index.holds("shall")


@pytest.mark.parametrize("analyzer", ["plain", "english"])
def test_stop_words_change_no_bit_of_other_queries(tmp_path: Path, analyzer: AnalyzerName) -> None:
    """Not even of documents of little else, whose stop words have larger impacts than any other word."""
    documents = [*corpus(), ["whose"] * 9, ["of", "of", "paint"]]
    bare = [[word for word in document if is_lexical(word)] for document in documents]
    some, none = (
        build(tmp_path / name, each, analyzer=analyzer)
        for name, each in (("some", documents), ("none", bare))
    )
    rows, alive = np.arange(len(documents)), RowMask(np.arange(len(documents)) > 99)
    assert some.header.parameters == none.header.parameters and some.header.postings > none.header.postings
    assert some.bound(["whose"]) > some.largest == none.largest
    assert some.largest_of(alive) == none.largest_of(alive)
    for start in range(len(STEMS) - 2):
        query = ["the", *(stem + ENDINGS[start % len(ENDINGS)] for stem in STEMS[start : start + 3]), "of"]
        assert some.score(query, rows).tobytes() == none.score(query, rows).tobytes()
        assert [each.tobytes() for each in some.search(query, 9)] == [
            each.tobytes() for each in none.search(query, 9)
        ]


BUILT = ["bees dance , bees hum", "the ants walk and the bees dance", "owls", "", "ants ants ants hum"]


def build_few(
    folder: Path, model: TermTable | None = None, bm25: Bm25 | None = None, most: int = 99
) -> ImpactIndex:
    """`BUILT`, with the idf of a model's table or of its own, which holds so many words."""
    documents, counter = [text.split() for text in BUILT], TermCounter(max_words=most)
    for document in documents:
        counter.add({"text": document})
    build_lexical(folder, documents, counter.table(), model or counter.table(), bm25)
    return ImpactIndex.open(folder)


def test_impacts_are_lucenes_bm25(tmp_path: Path) -> None:
    """The lengths are 4, 4, 1, 0 and 4 words: 2.6 on average; bees are in 2 of 5 documents."""
    index = build_few(tmp_path, bm25=Bm25(k1=1.5, b=0.6))
    expected = log(1 + (5 - 2 + 0.5) / (2 + 0.5)) * 2 / (2 + 1.5 * (1 - 0.6 + 0.6 * 4 / 2.6))
    assert index.by_word(["bees"], np.array([0]))[0, 0] == pytest.approx(expected, rel=1e-6)
    assert index.header.parameters == {"k1": 1.5, "b": 0.6, "average_length": pytest.approx(2.6)}
    assert (index.header.kind, index.header.documents, index.header.words) == ("bm25", 5, 8)


def test_idf_is_the_given_tables_and_a_word_that_it_lacks_is_one_of_a_single_document(tmp_path: Path) -> None:
    model = TermTable.from_counts({"bees": 900, "dance": 10, "hum": 2000}, 1000, {})
    index = build_few(tmp_path, model, Bm25(b=0.0))
    once = 1 / (1 + 1.2)
    found = index.by_word(["dance", "walk"], np.array([1]))[0].tolist()
    assert found == pytest.approx([once * log(1 + 990.5 / 10.5), once * log(1 + 999.5 / 1.5)], rel=1e-6)
    # A table that counts more documents with a word than documents must not make an impact of nothing.
    hum = index.by_word(["hum"], np.array([0]))[0, 0]
    assert hum == pytest.approx(once * log(1 + 0.5 / 1000.5), rel=1e-6)


def test_words_that_the_table_dropped_cannot_be_found_and_do_no_harm(tmp_path: Path) -> None:
    assert build_few(tmp_path, most=2).search(["owls"], 5)[1].tolist() == []


WORDS = [f"w{number:02}" for number in range(30)]
DOCUMENTS = 400
Matrix = NDArray[np.float32]


def write(
    folder: Path, matrix: Matrix, words: Sequence[str] = WORDS, chunk_postings: int = 97
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


@settings(max_examples=100)
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


def test_without_mask_and_order_all_count_and_rows_break_ties(matrix: Matrix, index: ImpactIndex) -> None:
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
    assert not index.score(words, np.setdiff1d(np.arange(300), rows)).any()


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
    assert [part.tolist() for part in index.search(["w28"], 10)] == [part.tolist() for part in before]


def test_many_threads_search_as_one_does(index: ImpactIndex) -> None:
    queries = [[WORDS[i % 30], WORDS[(i * 7) % 30], "absent"] for i in range(200)]
    alone = [index.search(query, 5)[1].tolist() for query in queries]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda query: index.search(query, 5)[1].tolist(), queries))
    assert together == alone


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    for count in (0, 4):
        index = write(tmp_path / str(count), np.zeros((count, 30), np.float32))
        assert len(index) == count and index.search(["w00"], 5)[1].tolist() == []


FEW_WORDS = ["ant", "bee", "cow", "dog", "owl"]
FEW_DOCUMENTS = [{1: 2.0, 4: 1.0}, {}, {0: 3.0}, {4: 2.5, 0: 1.5, 1: 0.5}]


def write_few(folder: Path, chunk_postings: int = 1 << 20) -> Path:
    with ImpactWriter(folder, FEW_WORDS, chunk_postings) as writer:
        for document in FEW_DOCUMENTS:
            writer.add(document.keys(), document.values())
        writer.finish("bm25", lambda _words, _rows, values: values, {"scale": 1.0})
    return folder


def test_postings_lie_by_word_with_rows_ascending(tmp_path: Path) -> None:
    folder = write_few(tmp_path)
    assert {
        name: np.load(folder / f"{name}.npy").tolist() for name in ("starts", "rows", "impacts", "maxima")
    } == {
        "starts": [0, 2, 4, 6],
        "rows": [2, 3, 0, 3, 0, 3],
        "impacts": [3.0, 1.5, 2.0, 0.5, 1.0, 2.5],
        "maxima": [3.0, 2.0, 2.5],
    }
    assert (folder / "words.bin").read_bytes() == b"antbeeowl"  # cow and dog have no posting


@pytest.mark.parametrize("chunk_postings", [1, 2, 3, 5])
def test_the_size_of_the_chunks_changes_no_byte(tmp_path: Path, chunk_postings: int) -> None:
    whole, cut = write_few(tmp_path / "whole"), write_few(tmp_path / "cut", chunk_postings)
    assert {path.name for path in cut.iterdir()} == set(IMPACTS_FILES)  # the working file is gone
    for name in IMPACTS_FILES:
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_the_working_file_goes_when_the_build_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ImpactWriter(tmp_path, FEW_WORDS):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def write_header(folder: Path, **values: object) -> None:
    path = folder / "impacts.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))


def put(index: int, value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array[index] = value
        return array

    return change


DAMAGED_ARRAYS: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "offsets that fall": ("offsets.npy", put(1, 9)),
    "starts that fall": ("starts.npy", put(1, 5)),
    "starts beyond the postings": ("starts.npy", put(-1, 9)),
    "rows of objects": ("rows.npy", lambda array: np.array([{}] * len(array), object)),
    "rows in two dimensions": ("rows.npy", lambda array: array.reshape(2, 3)),
    "rows beyond the documents": ("rows.npy", put(-1, 4)),
    "an impact that is no number": ("impacts.npy", put(-1, np.nan)),
    "an impact of nothing": ("impacts.npy", put(0, 0.0)),
    "an infinite maximum": ("maxima.npy", put(0, np.inf)),
}


@pytest.mark.parametrize("fault", DAMAGED_ARRAYS)
def test_a_damaged_array_is_refused_by_name(tmp_path: Path, fault: str) -> None:
    """What `tests/components` cannot know of these files."""
    folder = write_few(tmp_path / "impacts")
    name, change = DAMAGED_ARRAYS[fault]
    np.save(folder / name, change(np.load(folder / name)), allow_pickle=True)
    with pytest.raises(FormatError, match=f"impacts.*({name}|vocabulary)"):
        ImpactIndex.open(folder)


def test_a_header_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_header(folder := write_few(tmp_path / "impacts"), kind="magic")
    with pytest.raises(FormatError, match=r"impacts\.json"):
        ImpactIndex.open(folder)


def test_a_new_array_has_its_room_on_the_disk_before_it_is_written(tmp_path: Path) -> None:
    """Else a full disk would end the process by a signal."""
    found = new_array(tmp_path / "a.npy", np.uint32, 1 << 20)
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 4 << 20
    assert not found.any() and len(new_array(tmp_path / "b.npy", np.uint32, 0)) == 0


LEARNED_WORDS = ["delete", "remove", "zebra"]
UNIT = 0.05


def write_learned(folder: Path) -> ImpactIndex:
    """Three documents; the second has no word."""
    with ImpactWriter(folder, LEARNED_WORDS, chunk_postings=2) as writer:
        for words, codes, causes in (([1, 0], [200, 7], [0, 255]), ([], [], []), ([0], [255], [3])):
            writer.add(words, pack_codes(np.array(codes, np.uint8), np.array(causes, np.uint8)).tolist())
        writer.finish("learned", lambda _words, _rows, values: values, {"unit": UNIT, "budget": 2.0})
    return ImpactIndex.open(folder)


def test_codes_times_the_unit_are_impacts(tmp_path: Path) -> None:
    index = write_learned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(LEARNED_FILES)
    scores, rows = index.search(["delete", "remove", "delete"], 5)
    assert rows.tolist() == [2, 0]
    assert scores.tolist() == pytest.approx([2 * 255 * UNIT, (200 + 2 * 7) * UNIT])
    assert index.score(["delete", "remove", "delete"], rows).tolist() == scores.tolist()
    assert index.largest == pytest.approx(255 * UNIT)
    assert index.bound(["remove", "delete"]) == pytest.approx(455 * UNIT)


def test_each_says_where_it_comes_from(tmp_path: Path) -> None:
    index = write_learned(tmp_path)
    assert [index.cause("delete", row) for row in range(3)] == [255, None, 3]
    assert index.cause("remove", 0) == 0
    assert index.cause("zebra", 0) is index.cause("absent", 0) is None


def test_a_code_of_nothing_is_refused(tmp_path: Path) -> None:
    write_learned(tmp_path)
    codes = np.load(tmp_path / CODES_FILE)
    codes[1] = 0
    np.save(tmp_path / CODES_FILE, codes)
    with pytest.raises(FormatError, match=CODES_FILE):
        ImpactIndex.open(tmp_path)
    assert not (tmp_path / VALUES_FILE).exists()


@pytest.mark.parametrize("parameters", [{"budget": 2.0}, {"unit": 0.05}, {"unit": 0.0, "budget": 2.0}])
def test_a_header_without_a_codes_worth_is_refused(tmp_path: Path, parameters: dict[str, float]) -> None:
    write_learned(tmp_path)
    write_header(tmp_path, parameters=parameters)
    with pytest.raises(FormatError, match="unit"):
        ImpactIndex.open(tmp_path)
