"""Typos in queries: what is a typo, what was meant, and what is left alone; prefixes; codes that the default model finds."""

import itertools
import random
import string
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.artifact import default_model
from glow.errors import FormatError
from glow.index import Index
from glow.index.spelling import MOST_FAR, Speller, SpellingTable, build_spelling, forms
from glow.index.stored_fields import STORED_FIELDS
from glow.search import EncodedQuery, analyze_query, rank_hybrid
from glow.storage import SortedStrings, largest_places
from glow.text import TermTable, WordPieces, misspell
from tests.made_index import made, opened, write

WORDS = {
    "bees": 5, "directories": 2, "directory": 40, "dictionary": 9, "father": 3, "feather": 3, "file": 90, "files": 80,
    "find": 60, "light": 20, "night": 10, "remove": 70, "résumé": 4, "the": 99, "word2vec": 1,
    **dict.fromkeys(("zz", "1033", "a", "4", "b", "qx7731", "utf", "8", "pocs", "30017", "of"), 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spelling")
    build_spelling(path, sorted(WORDS.items(), key=lambda item: item[0].encode()))
    return path


@pytest.fixture
def speller(folder: Path, toy_model: Path) -> Speller:
    pieces = WordPieces(toy_model / "vocab.txt")
    return Speller(pieces, TermTable.from_counts(WORDS, 100, {}), [SpellingTable.open(folder)])


def naive_distance(a: str, b: str) -> int:
    """Optimal string alignment, by the textbook's table."""
    table = [[max(i, j) if not i * j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = a[i - 1] != b[j - 1]
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + cost)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


letters = st.text("abc", max_size=6)


@given(letters, letters)
def test_words_that_are_one_edit_apart_share_a_form(a: str, b: str) -> None:
    if naive_distance(a, b) == 1:
        assert set(forms(a)) & set(forms(b))


KEYBOARD = ("qwertyuiop ", "asdfghjkl ", "zxcvbnm ")


def test_every_typo_of_the_typist_is_one_edit() -> None:
    """A letter in place of another lies beside it."""
    chance = random.Random(0)  # noqa: S311 - no secret
    for _ in range(500):
        word = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(4, 12)))
        misspelled = misspell(word, chance)
        assert naive_distance(word, misspelled) == 1
        exchanged = [a + b for a, b in zip(word, misspelled, strict=False) if a != b]
        if len(misspelled) == len(word) and len(exchanged) == 1:
            assert any(exchanged[0] in row + row[::-1] for row in KEYBOARD), (word, misspelled)


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("remove a direcotry", "remove a directory"),
        ("Remove a Direcotry!", "Remove a directory!"),
        ("remvoe teh filles", "remove teh files"),  # three letters are too few
        ("fnd the beez", "fnd the bees"),
        ("remove the direcotry.", "remove the directory."),
        ("remove a directory", "remove a directory"),
        ("", ""),
    ],
)
def test_typos_are_corrected_and_the_rest_stays(speller: Speller, text: str, searched: str) -> None:
    assert speller.correct(text).text == searched


NAMES = "direcotry_name /var/direcotry direcotry.py --direcotry direCotry x-direcotry $direcotry direcotry2"


@pytest.mark.parametrize("text", [*NAMES.split(), "qwertz", "zzzzzzzz"])
def test_names_code_and_what_nothing_is_near_stay(speller: Speller, text: str) -> None:
    assert speller.correct(text).text == text


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("zz1033", "zz-1033"), ("ZZ-1033", "ZZ-1033"), ("ZZ1033?", "zz-1033?"), ("the Zz1033b", "the zz-1033-b"),
        ("pocs-30017b", "pocs-30017-b"), ("QX-7731", "qx7731"), ("QX7731", "QX7731"), ("A4", "a-4"), ("4a8b4", "4a8b4"),
        ("UTF8 fule", "utf-8 file"), ("qx_7731 éutf8 utf8é", "qx_7731 éutf8 utf8é"), ("wo-rd2vec", "word2vec"),
        ("zz1034", "zz1034"), ("zz-of", "zz-of"), ("C++ .NET 8.8.4", "C++ .NET 8.8.4"), ("bee-s", "bee-s"),
    ],
)  # fmt: skip
def test_codes_are_searched_as_documents_write_them(speller: Speller, text: str, searched: str) -> None:
    assert speller.correct(text).text == searched


def test_the_commoner_word_is_meant_unless_the_first_letter_differs(speller: Speller) -> None:
    assert speller.correct("fule").words == {"fule": "file"}
    assert speller.correct("nlight").text == "night"  # "light" is twice as common


def test_long_words_may_have_two_typos(toy_model: Path, tmp_path: Path) -> None:
    words = {"headphones": 9, "headphone": 2, "headline": 5, "hedgehog": 9, "office": 9, "conversation": 7}
    build_spelling(tmp_path, sorted(words.items()))
    tables, terms = [SpellingTable.open(tmp_path)], TermTable.from_counts(words, 100, {})
    speller = Speller(WordPieces(toy_model / "vocab.txt"), terms, tables)
    for word in ("headfones", "heaphdones", "haedphones", "headphnoes", "headfonnes"):
        found = {other for other in words if naive_distance(word, other) <= 2}
        assert speller.correct(word).text == ("headphones" if found else word), word
    # Other first letters, too short, another form of a word.
    for word in ("haedfones", "oficce", "headphonesxx"):
        assert speller.correct(word).text == word
    twice = ["headfones", "headones", "heapones", "headphxxes", "headxxones"]
    assert list(speller.correct(" ".join(twice)).words) == twice[:MOST_FAR]  # comparing takes time


def test_a_word_of_the_language_stays_unless_a_more_frequent_one_is_meant(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    letters = [f"{before}{letter}" for before in ("", "##") for letter in string.ascii_lowercase]
    words = ["home", "honey", "bees"]
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, *letters]))
    build_spelling(tmp_path, [("beeps", 3), ("home", 9), ("hone", 3), ("honeys", 1)])
    terms = TermTable.from_counts({"hone": 3}, 9, {})
    speller = Speller(WordPieces(vocabulary), terms, [SpellingTable.open(tmp_path)])
    assert speller.correct("bees honey homee").text == "bees honey home"
    assert speller.correct("honney").text == "honney"  # "honey" is in no document


def test_words_of_a_delta_are_known_and_candidates_too(folder: Path, toy_model: Path, tmp_path: Path) -> None:
    build_spelling(tmp_path / "delta", [("direcotry", 1), ("honeycomb", 2)])
    pieces = WordPieces(toy_model / "vocab.txt")
    tables = [SpellingTable.open(folder), SpellingTable.open(tmp_path / "delta")]
    speller = Speller(pieces, TermTable.from_counts(WORDS, 100, {}), tables)
    assert speller.correct("direcotry hoenycomb").text == "direcotry honeycomb"


def test_a_table_of_nothing_corrects_nothing(toy_model: Path, tmp_path: Path) -> None:
    header = build_spelling(tmp_path, [("a", 1), ("x2", 1)])
    assert (header.words, header.forms) == (0, 0)
    pieces, none = WordPieces(toy_model / "vocab.txt"), TermTable.from_counts({}, 0, {})
    speller = Speller(pieces, none, [SpellingTable.open(tmp_path)])
    assert speller.correct("bees").text == "bees"


def test_a_form_of_no_word_is_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    places = np.load(tmp_path / "places.npy")
    places[0] = 1_000
    np.save(tmp_path / "places.npy", places)
    with pytest.raises(FormatError, match=r"places\.npy is damaged: it names a word beyond"):
        SpellingTable.open(tmp_path)


LETTERED = sorted("".join(each) for each in itertools.product(string.ascii_lowercase[:16], repeat=4))
FREQUENCIES = np.random.default_rng(1).zipf(1.5, len(LETTERED)).clip(1, 10**6).astype(np.uint32)


@pytest.fixture(scope="module")
def table() -> SpellingTable:
    none = np.empty(0, np.uint32)
    return SpellingTable(SortedStrings.pack(word.encode() for word in LETTERED), FREQUENCIES, none, none)


def test_a_prefix_stands_for_the_most_frequent_words_that_begin_with_it(table: SpellingTable) -> None:
    for prefix in ("a", "p", "abc", "abcd", "q", ""):
        found = table.starting(prefix, 32)
        words = zip(LETTERED, FREQUENCIES.tolist(), strict=True)
        wanted = sorted((-df, word) for word, df in words if word.startswith(prefix))
        assert [(-df, word) for word, df in found.items()] == wanted[:32]


def test_a_letter_over_a_million_words_takes_little_time() -> None:
    values = np.random.default_rng(1).zipf(1.5, 1 << 20).clip(1, 10**6).astype(np.uint32)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        largest_places(values, 32)
        seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[2] < 0.02


def test_a_prefix_with_a_typo_stands_for_those_one_edit_away(table: SpellingTable) -> None:
    near = {word for word in LETTERED if word[:2] == "ab" and "d" in word[2:4]}
    assert table.nearly_starting("abzd", 10**6).keys() == near


@pytest.mark.parametrize("count", [0, 1, 63, 64, 5_000])
def test_the_largest_values_are_those_of_a_sort(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 9, count).astype(np.uint32)
    for most in (1, 5, 100):
        wanted = np.lexsort((np.arange(count), -values.astype(np.int64)))[:most]
        assert np.array_equal(largest_places(values, most), wanted)


TEXTS = (
    "The pump {} delivers twelve litres a minute.",
    "Replace the seal with part {} after two years.",
    "Support for {} was added in spring.",
    "An error {} means that the cable is loose.",
)
CODES = (
    "ZZ-1033 POCS-30017 QX7731 AB/12-9 4711-B X100.2 ISO-9001 DIN-912 RFC-2616 CVE-2024-3094 0x8007 SHA-256 UTF-8 8.8.4 "
    "v1.2.3 2.0.0-rc1 C++ C# F# .NET node.js A4 802.11ac M8x40 LM317T BC547 RJ45 USB-C 1N4148 ATmega328P XK-42/b H.264 "
    "PSR-4 PEP-8 T-1000 KB5034441 INC0012345 E-404 #1289 3.5mm"
).split()
"""No two differ in a digit alone: of such twins, dense search may put the other one first."""
TYPED = {
    "zz1033": "ZZ-1033", "pocs30017": "POCS-30017", "qx-7731": "QX7731", "iso9001": "ISO-9001", "rfc2616": "RFC-2616",
    "sha256": "SHA-256", "utf8": "UTF-8", "c++": "C++", ".net": ".NET", "pump zz-1033": "ZZ-1033",
    "NODE.JS": "node.js", "usb c": "USB-C",
}  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("identifiers")
    rows = [{"_id": name, "text": TEXTS[at % len(TEXTS)].format(name)} for at, name in enumerate(CODES)]
    root = made(Path(default_model()), write(folder / "corpus.jsonl", rows), folder / "index", index="flat")
    return opened(root)


@pytest.mark.parametrize(("text", "name"), [*zip(CODES, CODES, strict=True), *TYPED.items()])
def test_the_document_that_has_a_code_comes_first(index: Index, text: str, name: str) -> None:
    reading = analyze_query(index, text)
    query = EncodedQuery(reading.text, index.encoder.run([reading.tokens])[0])
    first = rank_hybrid(index, query, 100).rows[:1].tolist()
    assert index[STORED_FIELDS].rows(first)[0].id == name
