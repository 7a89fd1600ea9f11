"""Typos in queries: what is a typo, what was meant, and what is left alone."""

import random
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FormatError
from glow.index.spelling import MOST_FAR, Speller, SpellingTable, build_spelling, forms
from glow.text import TermTable, WordPieces, misspell

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


def test_the_end_of_a_sentence_is_no_joint(speller: Speller) -> None:
    assert speller.correct("remove the direcotry.").text == "remove the directory."


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
    speller = Speller(
        WordPieces(toy_model / "vocab.txt"), TermTable.from_counts({}, 0, {}), [SpellingTable.open(tmp_path)]
    )
    assert speller.correct("bees").text == "bees"


def test_a_form_of_no_word_is_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    places = np.load(tmp_path / "places.npy")
    places[0] = 1_000
    np.save(tmp_path / "places.npy", places)
    with pytest.raises(FormatError, match=r"places\.npy is damaged: it names a word beyond"):
        SpellingTable.open(tmp_path)


@pytest.mark.parametrize("name", ["keys.npy", "places.npy", "dfs.npy", "words.bin", "spelling.json"])
def test_a_damaged_table_is_refused_by_name(folder: Path, tmp_path: Path, name: str) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-8])
    with pytest.raises(FormatError):
        SpellingTable.open(tmp_path)
