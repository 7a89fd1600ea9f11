"""Term statistics: counted from a stream in bounded memory, saved, mapped and hashed."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError, FormatError
from glow.text import TermCounter, TermTable, select_terms
from glow.text.terms import MAX_WORD_CHARACTERS

WORDS = st.lists(st.text(min_size=1, max_size=6), max_size=8)
DOCUMENTS = st.lists(st.fixed_dictionaries({"title": WORDS, "text": WORDS}), max_size=12)
COUNTS = {"bee": 3, "日本": 2, "the": 7, "é": 1, "z" * MAX_WORD_CHARACTERS: 1}


@pytest.fixture
def table() -> TermTable:
    return TermTable.from_counts(COUNTS, 9, {"title": 2.5, "query": 4.0}, dropped_words=5)


def count(documents: Sequence[dict[str, list[str]]], max_words: int = 1000) -> TermTable:
    counter = TermCounter(max_words)
    for document in documents:
        counter.add(document)
    return counter.table()


@given(DOCUMENTS)
def test_a_stream_is_counted_as_the_whole(documents: list[dict[str, list[str]]]) -> None:
    """Document frequencies and averages equal those of all documents held at once."""
    found = count(documents)
    df = Counter(word for document in documents for word in {*document["title"], *document["text"]})
    assert dict(found.items()) == df
    assert found.documents == len(documents)
    for name in ("title", "text"):
        lengths = [len(document[name]) for document in documents if document[name]]
        assert found.lengths.get(name) == (pytest.approx(np.mean(lengths)) if lengths else None)
    for word in df:
        assert found.df(word) == df[word]


@given(DOCUMENTS, st.randoms())
def test_the_order_of_documents_never_matters(documents: list[dict[str, list[str]]], random: object) -> None:
    shuffled = documents.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # the type is what is tested
    assert count(shuffled).hash == count(documents).hash


def test_asking_for_the_table_does_not_disturb_the_counting() -> None:
    documents = [{"text": [f"w{n % 7}", f"w{n % 11}", "x"]} for n in range(60)]
    asked = TermCounter(max_words=4)
    for document in documents:
        asked.add(document)
        asked.table()
    assert asked.table().hash == count(documents, max_words=4).hash
    assert asked.table().dropped_words == count(documents, max_words=4).dropped_words


def test_the_rarest_words_are_dropped_and_counted() -> None:
    once = [f"once{letter}" for letter in "hgfedcba"]
    found = count([{"text": ["often", "some"]}] * 5 + [{"text": ["often", *once]}], max_words=4)
    assert dict(found.items()) == {
        "often": 6,
        "some": 5,
        "oncea": 1,
        "onceb": 1,
    }  # of equals the smaller stay
    assert found.dropped_words == 6
    with pytest.raises(ConfigError, match="max_words"):
        TermCounter(0)


def test_memory_is_bounded_and_frequent_words_stay_exact() -> None:
    counter = TermCounter(max_words=100)
    for number in range(2000):
        counter.add({"text": ["the", f"once{number}", "and"]})
        assert len(counter._dfs) <= 126
    found = counter.table()
    assert len(found) == 100
    assert found.df("the") == found.df("and") == 2000
    assert found.dropped_words == 2002 - 100


def test_long_words_count_for_length_and_are_not_kept() -> None:
    found = count([{"text": ["x" * MAX_WORD_CHARACTERS, "y" * (MAX_WORD_CHARACTERS + 1), "bee"]}])
    assert found.average_length("text") == 3.0
    assert len(found) == 2
    assert found.df("y" * (MAX_WORD_CHARACTERS + 1)) == 0


def test_queries_give_their_average_length_and_no_words() -> None:
    counter = TermCounter()
    counter.add({"text": ["bee"]})
    for words in (["what", "is"], ["bee"] * 6, []):
        counter.add_query(words)
    found = counter.table()
    assert found.average_length("query") == 4.0
    assert (found.documents, dict(found.items())) == (1, {"bee": 1})


def test_an_average_length_is_at_least_1() -> None:
    """Where nothing was counted, too: lengths divide."""
    found = TermTable.from_counts({}, 0, {"title": 0.0})
    assert found.average_length("title") == found.average_length("absent") == 1.0


def test_a_saved_table_is_mapped_back_unchanged(table: TermTable, tmp_path: Path) -> None:
    table.save(tmp_path / "terms")
    loaded = TermTable.load(tmp_path / "terms")
    assert dict(loaded.items()) == COUNTS
    assert (loaded.documents, loaded.lengths, loaded.dropped_words) == (9, {"query": 4.0, "title": 2.5}, 5)
    assert [loaded.df(word) for word in [*COUNTS, "absent", "", "a", "zz"]] == [3, 2, 7, 1, 1, 0, 0, 0, 0]
    assert loaded.hash == table.hash
    assert isinstance(loaded._words.text.obj.base, np.memmap)  # type: ignore[attr-defined]  # the type is what is tested
    loaded.save(tmp_path / "again")
    for path in (tmp_path / "terms").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    empty = TermTable.from_counts({}, 0, {})
    empty.save(tmp_path / "empty")
    again = TermTable.load(tmp_path / "empty")
    assert len(again) == again.df("bee") == again.documents == 0 and again.hash == empty.hash


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.integers(1, 2**32 - 1)))
def test_every_word_is_found_again(counts: dict[str, int]) -> None:
    found = TermTable.from_counts(counts, 10, {})
    assert dict(found.items()) == counts
    assert all(found.df(word) == df for word, df in counts.items())
    assert list(found.items()) == sorted(counts.items(), key=lambda item: item[0].encode())


@pytest.mark.parametrize(
    "change",
    [
        {"counts": COUNTS | {"bee": 4}},
        {"counts": COUNTS | {"new": 1}},
        {"counts": {**COUNTS, "bees": 3} | {"bee": 1}},
        {"documents": 10},
        {"lengths": {"title": 2.5000001, "query": 4.0}},
        {"lengths": {"title": 2.5}},
        {"lengths": {"text": 2.5, "query": 4.0}},
    ],
    ids=str,
)
def test_the_hash_changes_with_whatever_changes_a_weight(change: dict, table: TermTable) -> None:
    base = {"counts": COUNTS, "documents": 9, "lengths": {"title": 2.5, "query": 4.0}}
    assert TermTable.from_counts(**base, dropped_words=99).hash == table.hash
    assert TermTable.from_counts(**(base | {"lengths": {"title": 2.5, "query": 4}})).hash == table.hash
    assert TermTable.from_counts(**(base | change)).hash != table.hash


def test_the_source_decides_the_table(table: TermTable) -> None:
    corpus = TermTable.from_counts({"bee": 1}, 2, {"text": 7.0})
    assert select_terms("model", corpus, table) is table
    alone = select_terms("corpus", corpus, table)
    assert (dict(alone.items()), alone.documents) == ({"bee": 1}, 2)
    assert alone.lengths == {"text": 7.0, "query": 4.0}  # documents know nothing of the length of queries


def rewrite(folder: Path, **header: object) -> None:
    path = folder / "terms.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | header))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "no words": lambda folder: (folder / "words.bin").unlink(),
    "no header": lambda folder: (folder / "terms.json").unlink(),
    "words cut": lambda folder: (folder / "words.bin").write_bytes(b"be"),
    "words empty": lambda folder: (folder / "words.bin").write_bytes(b""),
    "offsets empty": lambda folder: (folder / "offsets.npy").write_bytes(b""),
    "offsets cut": lambda folder: os.truncate(path := folder / "offsets.npy", path.stat().st_size - 3),
    "offsets not from 0": lambda folder: np.save(folder / "offsets.npy", np.full(6, 139, np.int64)),
    "dfs garbage": lambda folder: (folder / "dfs.npy").write_bytes(b"garbage" * 20),
    "dfs an archive": lambda folder: np.savez((folder / "dfs.npy").open("wb"), a=np.zeros(5, np.uint32)),
    "dfs pickled": lambda folder: np.save(folder / "dfs.npy", np.array([{}] * 5), allow_pickle=True),
    "dfs of another type": lambda folder: np.save(folder / "dfs.npy", np.ones(5)),
    "dfs too short": lambda folder: np.save(folder / "dfs.npy", np.ones(4, np.uint32)),
    "header not UTF-8": lambda folder: (folder / "terms.json").write_bytes(b"\xff\xfe\x00"),
    "header deep": lambda folder: (folder / "terms.json").write_text("[" * 100_000),
    "documents below 0": lambda folder: rewrite(folder, documents=-1),
    "a length NaN": lambda folder: rewrite(folder, average_lengths={"title": float("nan")}),
    "words do not fit": lambda folder: rewrite(folder, words=4),
    "format of tomorrow": lambda folder: rewrite(folder, format=2, news=True),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_is_refused_by_name(damage: str, table: TermTable, tmp_path: Path) -> None:
    folder = tmp_path / "terms"
    table.save(folder)
    DAMAGES[damage](folder)
    with pytest.raises(FormatError, match="terms"):
        TermTable.load(folder)


def test_a_look_up_in_200_thousand_words_takes_microseconds(tmp_path: Path) -> None:
    """The bar is twenty times what it takes, so that a busy machine passes and a linear scan does not."""
    TermTable.from_counts({f"word{n}": 1 + n % 7 for n in range(200_000)}, 10**6, {}).save(tmp_path)
    start = time.process_time()
    found = TermTable.load(tmp_path)
    numbers = range(0, 200_000, 200)
    assert [found.df(f"word{n}") for n in numbers] == [1 + n % 7 for n in numbers]
    assert time.process_time() - start < 0.5
