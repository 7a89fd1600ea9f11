"""Words of URLs as BISON B.2 describes: cut at punctuation, digits dropped, run-together words cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.text.words import MAX_RUN_CHARACTERS, MAX_URL_CHARACTERS, url_words


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
        ("https://x.org/caf%C3%A9", "x org café"),
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


def test_escaped_digits_are_digits() -> None:
    assert url_words("x.org/%31%32") == "x org"


def test_runs_too_long_for_words_stay_whole() -> None:
    run = "abcdefghij" * 5
    assert len(run) > MAX_RUN_CHARACTERS
    assert url_words(f"https://x.org/{run}") == f"x org {run}"


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_any_string_gives_words_of_letters_and_digits(url: str, keep_digits: bool) -> None:
    words = url_words(url, keep_digits=keep_digits).split(" ")
    assert all(word.replace("'", "").isalnum() or not word.isascii() for word in words if word)
    assert keep_digits or not any(character.isdecimal() for word in words for character in word)


@pytest.mark.parametrize(
    "url",
    [
        "a" * 1_000_000,
        "ab/" * 300_000,
        "%" * 1_000_000,
        "%41" * 300_000,
        "9" * 1_000_000,
        "\ud800" * 1_000_000,
    ],
)
def test_a_huge_url_costs_no_more_than_a_long_one(url: str) -> None:
    url_words("warm.up")  # loads the word list
    start = time.process_time()
    words = url_words(url)
    assert time.process_time() - start < 0.5
    assert len(words) <= 2 * MAX_URL_CHARACTERS
