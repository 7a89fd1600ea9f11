"""Words are those of BERT's basic tokenizer, tokens have its ids, from which the towers' weights start, and no string raises."""

import string
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from glow.errors import FormatError
from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, Weighting, WordPieces
from glow.text.words import (
    CACHED_CHARACTERS,
    MAX_RUN_CHARACTERS,
    MAX_URL_CHARACTERS,
    is_punctuation,
    url_words,
)

ANY_CHARACTER = st.characters(exclude_categories=())  # lone surrogates too
ASCII = st.text(st.characters(max_codepoint=127))
HOSTILE = [
    "a",
    "a ",
    "\0",
    "\ud800",
    "日",
    "é",
    "é ",
    "a\u0301",
    "\u202e\u05d0",
    "👩\u200d👩\u200d👧",
    "[UNK]",
]


@pytest.fixture(scope="module")
def full(full_vocabulary: Path) -> WordPieces:
    return WordPieces(full_vocabulary)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("How do BEES find home?", ["how", "do", "bees", "find", "home", "?"]),
        ("Crème brûlée", ["creme", "brulee"]),
        ("日本 x", ["日", "本", "x"]),
        ("can't re-do", ["can", "'", "t", "re", "-", "do"]),
        ("[SEP] [UNK]", ["[", "sep", "]", "[", "unk", "]"]),
        ("a\0b\x0bc\x7fd", ["abcd"]),
        ("a\tb\r\nc\u2028d\u00a0e", ["a", "b", "c", "d", "e"]),
        ("bee\ud800s \udfff", ["bee", "s"]),
        ("«bee»—hive…", ["«", "bee", "»", "—", "hive", "…"]),
        ("5€ £3 x^2", ["5€", "£3", "x", "^", "2"]),
        (" \n\t\u200b\u0301", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str], pieces: WordPieces) -> None:
    assert pieces.words(text) == words


@given(ASCII | st.text(st.sampled_from(" \t\n\x1c\u0301aé日-\u00ad\u2028") | st.characters(codec="utf-8")))
@settings(max_examples=500)
def test_text_is_split_as_by_the_library(full: WordPieces, text: str) -> None:
    """The fast ways, for ASCII and at blanks, are two more writings of the same rule."""
    assert full.words(text) == full._unicode_words(text)


@given(st.text(ANY_CHARACTER))
@settings(max_examples=300)
def test_any_string_has_words_and_every_word_has_pieces(full: WordPieces, text: str) -> None:
    for word in full.words(text):
        ids = full.pieces(word)
        assert ids
        assert all(0 <= number < full.size for number in ids)
        word.encode()


@pytest.mark.parametrize("part", HOSTILE, ids=ascii)
def test_hostile_texts_take_seconds_at_most(part: str, pieces: WordPieces) -> None:
    text = part * (300_000 // len(part))
    start = time.process_time()
    for word in set(pieces.words(text)):
        pieces.pieces(word)
    assert time.process_time() - start < 3


def test_a_word_of_more_than_100_characters_is_unknown(pieces: WordPieces) -> None:
    unknown = pieces.pieces("\u2603")
    assert len(pieces.pieces("a" * 100)) == 100
    assert pieces.pieces("a" * 101) == unknown
    assert pieces.pieces("a" * 1_000_000) == unknown


def test_long_words_are_not_kept_in_memory(small_vocabulary: Path) -> None:
    """A stream of hostile queries must not fill the cache with megabytes."""
    pieces = WordPieces(small_vocabulary)
    pieces.pieces("a" * CACHED_CHARACTERS)
    pieces.pieces("a" * (CACHED_CHARACTERS + 1))
    assert pieces._cached_pieces.cache_info().currsize == 1


def test_punctuation_is_what_bert_counts() -> None:
    assert all(is_punctuation(mark) for mark in string.punctuation + "—«»…。")
    assert not any(is_punctuation(word) for word in ["a", "7", "ab", "", "--", "€", "日", "\n", "\0"])


@given(ANY_CHARACTER)
def test_every_unicode_mark_is_punctuation(character: str) -> None:
    if not character.isascii():
        assert is_punctuation(character) == unicodedata.category(character).startswith("P")


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
def test_a_vocabulary_without_a_special_piece_is_refused(missing: str, tmp_path: Path) -> None:
    special = [piece for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if piece != missing]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*special, "a"]), encoding="utf-8")
    with pytest.raises(FormatError, match=rf"lacks \{missing}"):
        WordPieces(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe[PAD]", None], ids=["empty", "not UTF-8", "absent"])
def test_an_unreadable_vocabulary_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=r"vocab\.txt"):
        WordPieces(path)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_only_line_ends_separate_pieces(end: str, tmp_path: Path) -> None:
    """A token that Unicode counts as a line separator would shift every later id."""
    line = "\r\n" if end == "\r\n" else "\n"
    path = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2028", "\x85", "bee"]
    path.write_bytes((line.join(tokens) + end).encode())
    pieces = WordPieces(path)
    assert pieces.size == 7
    assert pieces.pieces("bee") == (6,)
    assert (pieces.pad_id, pieces.cls_id, pieces.sep_id) == (0, 2, 3)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://www.nationalgeographic.com/", "www national geographic com"),
        ("https://www.readthedocs.org/en/stable/", "www read the docs org en stable"),
        ("http://x.org/police-or-sheriff-27s_patrol.html", "x org police or sheriff s patrol html"),
        ("https://x.org/earth/10914205/In-pictures", "x org earth In pictures"),
        ("docs.python.org/3/library", "docs python org library"),
        ("//x.org/a?b=c&d=e#f", "x org a b c d e f"),
        ("mailto:bee@hive.org", "mailto bee hive org"),
        ("git+ssh://hive.org", "hive org"),
        ("https://x.org/the%20bee%2Fhome", "x org the bee home"),
        ("https://x.org/caf%C3%A9/%31%32", "x org café"),
        ("https://x.org/%E6%97%A5%E6%9C%AC", "x org 日本"),
        ("https://münchen.de/straße", "münchen de straße"),
        ("https://x.org/%zz%ff%00%", "x org zz"),
        ("12345", ""),
        ("", ""),
        ("http://", ""),
    ],
)
def test_url_words(url: str, words: str) -> None:
    assert url_words(url) == words


def test_digits_are_kept_on_demand() -> None:
    """GLOW's Table 4 shows "10914205" in a URL, BISON B.2 removes digits."""
    assert url_words("https://x.org/earth/10914205/page2", keep_digits=True) == "x org earth 10914205 page 2"


def test_runs_too_long_for_words_stay_whole() -> None:
    run = "abcdefghij" * 5
    assert len(run) > MAX_RUN_CHARACTERS
    assert url_words(f"https://x.org/{run}") == f"x org {run}"


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_any_string_gives_words_of_letters_and_digits(url: str, keep_digits: bool) -> None:
    words = url_words(url, keep_digits=keep_digits).split(" ")
    assert all(word.replace("'", "").isalnum() or not word.isascii() for word in words if word)
    assert keep_digits or not any(character.isdecimal() for word in words for character in word)


@pytest.mark.parametrize("part", ["a", "ab/", "%", "%41", "9", "\ud800"])
def test_a_huge_url_costs_no_more_than_a_long_one(part: str) -> None:
    url_words("warm.up")  # loads the word list
    start = time.process_time()
    words = url_words(part * 300_000)
    assert time.process_time() - start < 0.5
    assert len(words) <= 2 * MAX_URL_CHARACTERS


FIELDS = (FieldSpec(name="title", tokens=400), FieldSpec(name="text", tokens=400))
SCHEMA = FieldSchema(name="wide", query_tokens=500, document_tokens=800, fields=FIELDS)
ORDINARY = [
    "what are the symptoms of acute lymphoblastic leukemia?",
    "How do I parse a date from a string in Python 3.11?",
    "tar -xzvf archive.tar.gz --strip-components=1 -C /tmp/out",
    "Crème brûlée, naïve façade — Ångström’s “units” cost €5 (or £4.20)…",
    "Don't re-enter: it's the user's e-mail address, user.name+tag@example.co.uk",
    "日本語のテキスト and 中文 mixed with English",
    "Привет мир; Γειά σου Κόσμε; שלום עולם; مرحبا بالعالم; नमस्ते",
    "emoji 👍🏽 family 👩\u200d👩\u200d👧 flags 🇫🇷 and snowman ☃",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 101 + " and " + "b" * 100,
    "tabs\tand\nnew\r\nlines\x0band\x00controls\x7f \u200bzero\u200dwidth\u00adsoft",
    "ｆｕｌｌｗｉｄｔｈ ﬁ ligature ½ x² H₂O Ⅷ",
    "İstanbul DŽ ǅ ẞ straße ŒUVRE",
    "...!!! ??? --- ___ ```` ~~~ ^^^ ||| $$$ %%%",
    "",
    "   ",
]


@pytest.fixture(scope="module")
def ours(full: WordPieces) -> Preprocessor:
    return Preprocessor(full, SCHEMA, Weighting(), TermTable.from_counts({}, 0, {}))


@pytest.fixture(scope="module")
def bert(full_vocabulary: Path) -> BertTokenizer:
    return BertTokenizer(vocab=str(full_vocabulary), do_lower_case=True)


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: ascii(text[:20]))
def test_ordinary_text_has_the_ids_of_both_bert_tokenisers(
    text: str, ours: Preprocessor, bert: BertTokenizer, full_vocabulary: Path
) -> None:
    """Equal to today's (in Rust) and to the first (in Python) tokeniser of `transformers`."""
    ids = ours.query(text).ids.tolist()
    assert ids == bert(text).input_ids
    assert ids == BertTokenizerLegacy(str(full_vocabulary), do_lower_case=True)(text).input_ids


@given(text=st.text(max_size=200).filter(lambda text: "[" not in text))
def test_text_without_specials_has_berts_ids(ours: Preprocessor, bert: BertTokenizer, text: str) -> None:
    assert ours.query(text).ids.tolist() == bert(text).input_ids


def test_two_fields_are_a_pair_of_bert_with_its_segments(ours: Preprocessor, bert: BertTokenizer) -> None:
    title, text = ORDINARY[0], ORDINARY[3]
    tokens, pair = ours.document(Document("d", {"title": (title,), "text": (text,)})), bert(title, text)
    assert tokens.ids.tolist() == pair.input_ids
    assert tokens.field_ids.tolist() == pair.token_type_ids


def test_a_literal_special_in_the_text_is_text(ours: Preprocessor, bert: BertTokenizer) -> None:
    """The one difference, on purpose: nobody can end a field or hide a word by typing "[SEP]"."""
    ids = ours.query("bees [SEP] [PAD] home").ids
    assert np.count_nonzero(ids == bert.sep_token_id) == 1
    assert np.count_nonzero(ids == bert.pad_token_id) == 0
