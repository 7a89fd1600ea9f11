"""Which words a lexical index holds."""

from pathlib import Path

import pytest

from glow.records import Document
from glow.schema import FieldSchema
from glow.text import WordPieces, is_lexical, lexical_words
from glow.text.analyzer import STOP_WORDS


@pytest.mark.parametrize("word", ["the", "what", "does", ",", "。", "a" * 129])
def test_words_that_say_nothing_are_not_held(word: str) -> None:
    assert not is_lexical(word)


@pytest.mark.parametrize("word", ["bees", "d", "c", "under", "before", "not-a-word", "蜂", "a" * 128])
def test_other_words_are_held(word: str) -> None:
    """Vitamin D, C the language, and places in time and space mean something."""
    assert is_lexical(word)


def test_stop_words_are_words_as_the_tokeniser_yields_them(toy_model: Path) -> None:
    pieces = WordPieces(toy_model / "vocab.txt")
    assert all(pieces.words(word) == [word] for word in STOP_WORDS)


def test_all_values_of_all_text_fields_count_and_urls_do_not(toy_model: Path) -> None:
    fields = {
        "title": ("Bees!",),
        "clicked_queries": tuple(f"query {number}" for number in range(7)),
        "url": ("https://example.org/hive",),
        "other": ("no field of the schema",),
    }
    found = lexical_words(
        Document("d", fields), FieldSchema.preset("glow-default"), WordPieces(toy_model / "vocab.txt")
    )
    assert list(found) == ["bees", "!", *(word for number in range(7) for word in ("query", str(number)))]
