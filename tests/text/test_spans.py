"""Words with their places: the same words as preprocessing yields, and the characters that they were written with."""

import time
from itertools import pairwise
from unicodedata import category, combining

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.schema import FieldSpec
from glow.text import WordPieces
from glow.text.spans import WordSpans
from glow.text.words import url_runs

# Canonical order moves marks that stay in a word; it then differs in the order of such marks alone.
MOVED = "".join(mark for mark in map(chr, range(0x110000)) if combining(mark) and category(mark) != "Mn")
ODD = [
    "İ",
    "ß",
    "한",
    "東",
    "の",
    "\u0301",
    "\x00",
    "\u200b",
    "\ud800",
    "\ufffd",
    "\u00a0",
    "ﬁ",
    "…",
    "¿",
]
TEXT = st.text(
    st.one_of(st.characters(exclude_characters=MOVED), st.sampled_from("ab. \t\n"), st.sampled_from(ODD))
)


@pytest.fixture(scope="module")
def spans(pieces: WordPieces) -> WordSpans:
    return WordSpans(pieces)


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_the_words_are_those_of_preprocessing_and_their_places_follow_one_another(
    spans: WordSpans, text: str
) -> None:
    found = list(spans.of_text(text))
    assert [span.word for span in found] == spans.pieces.whole_words(text)
    among = {span.word for span in found[::2]}
    assert list(spans.of_text(text, among)) == [span for span in found if span.word in among]
    assert all(span.start < span.end for span in found)
    assert all(one.end <= other.start or one[1:] == other[1:] for one, other in pairwise(found))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Café crème,", ["Café", "crème", ","]),
        ("cafe\u0301 x", ["cafe\u0301", "x"]),
        ("\u0301a", ["a"]),
        ("東京bees", ["東", "京", "bees"]),
        ("a\x00b c\u200bd", ["a\x00b", "c\u200bd"]),
        ("İstanbul 한국", ["İstanbul", "한국"]),
        ("bees\ud800home", ["bees", "home"]),
        ("tab\tbees\nnew\u00a0line", ["tab", "bees", "new", "line"]),
    ],
)
def test_a_word_is_found_as_it_is_written_with_its_accents(
    spans: WordSpans, text: str, words: list[str]
) -> None:
    assert [text[span.start : span.end] for span in spans.of_text(text)] == words


def test_the_words_of_a_url_are_cut_out_of_it(spans: WordSpans) -> None:
    url = "https://docs.python.org/3/learnpython/index.html"
    spec = FieldSpec(name="url", tokens=16, kind="url")
    words = {"docs", "python", "org", "learn", "index", "html"}
    found = list(spans.of_url(url, spec, {*words, "https", "learnpython"}))
    assert [span.word for span in found] == ["docs", "python", "org", "learn", "python", "index", "html"]
    assert [url[span.start : span.end] for span in found] == [span.word for span in found]
    assert [run for run, _ in url_runs("a/3b_4", keep_digits=True)] == ["a", "3", "b", "4"]


@pytest.mark.parametrize(
    "text", ["東京" * 50_000, "é" * 100_000, "a.b-" * 25_000, "aé" * 50_000, "é " * 50_000]
)
def test_long_texts_take_time_in_proportion(spans: WordSpans, text: str) -> None:
    def seconds(text: str) -> float:
        started = time.process_time()
        for _ in spans.of_text(text):
            pass
        return time.process_time() - started

    seconds(text)
    assert seconds(text) < 40 * max(seconds(text[: len(text) // 10]), 1e-3)
