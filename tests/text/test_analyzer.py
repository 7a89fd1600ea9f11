"""Analyzers: stems are Snowball's, letters are folded, and tables of terms count documents."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from glow.records import Document
from glow.schema import FieldSchema
from glow.text import Analyzer, CorpusCounter, TermTable, WordPieces, is_lexical, lexical_words
from glow.text.analyzer import STOP_WORDS

# From Snowball's own page of its English stemmer.
STEMS = {
    "consign": "consign", "consigned": "consign", "consistency": "consist", "consolation": "consol", "knack": "knack",
    "knightly": "knight", "knocking": "knock", "generously": "generous", "skies": "sky", "dying": "die", "news": "news",
}  # fmt: skip


@pytest.mark.parametrize(("word", "stem"), STEMS.items())
def test_stems_are_snowballs(word: str, stem: str) -> None:
    assert Analyzer("english").term(word) == stem
    assert Analyzer("plain").term(word) == word


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("straße", "strass"), ("ﬁles", "file"), ("ｆｉｌｅ", "file"), ("café", "cafe"), ("smørrebrød", "smorrebrod"),
        ("łódź", "lodz"), ("日本", "日本"), ("한국어", "한국어"), ("٣", "٣"),
        ("\u0301", "\u0301"),  # an accent alone stays: a term is never empty
        ("running" * 20, "running" * 20),  # no index holds such a word
    ],
)  # fmt: skip
def test_letters_are_folded_before_the_stem_is_taken(word: str, folded: str) -> None:
    assert Analyzer("english").term(word) == folded


@given(word=st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20))
def test_a_stem_begins_as_its_word(word: str) -> None:
    """Words that begin otherwise than a term are not looked at."""
    assert Analyzer("english").term(word)[:1] == word[:1]


def test_terms_are_the_same_from_many_threads() -> None:
    stems, endings = "walk paint direct connect".split(), ("s", "ed", "ing", "ion")
    words = [f"{word}{ending}" for word in stems for ending in endings]
    reference, analyzer = Stemmer.Stemmer("english"), Analyzer("english")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(analyzer.term, words * 500))
    assert found == reference.stemWords(words) * 500


def test_documents_are_counted_once_for_each_term() -> None:
    counter = CorpusCounter(Analyzer("english"))
    counter.add({"title": ["walks", "walking"], "text": ["walk", "being"]})
    counter.add({"text": ["walked", "paints"]})
    words, terms, _ = counter.tables()
    assert dict(words.items()) == {"being": 1, "paints": 1, "walk": 1, "walked": 1, "walking": 1, "walks": 1}
    # `being` is a stop word: a term of its own.
    assert dict(terms.items()) == {"being.": 1, "paint": 1, "walk": 2}
    assert terms.documents == 2


def test_words_that_only_lexical_search_reads_leave_the_encoders_statistics_as_they_are() -> None:
    counter = CorpusCounter(Analyzer("english"), own=True)
    counter.add({"text": ["walks"]}, own=["paints"], weak={"walk", "sku"})
    counter.add({"text": ["sings"]}, weak={"walking", "sku"})
    words, terms, vocabulary = counter.tables()
    assert dict(words.items()) == {"sings": 1, "walks": 1} and words.lengths == {"text": 1.0}
    assert dict(vocabulary.items()).keys() == {"sings", "walks", "paints", "walk", "walking", "sku"}
    # `walk` keeps the frequency that it has in texts, so weak words change no other document's score.
    assert dict(terms.items()) == {"paint": 1, "sing": 1, "sku": 2, "walk": 1}


def test_a_table_of_terms_made_of_one_of_words_is_an_upper_bound() -> None:
    words = TermTable.from_counts({"walk": 3, "walks": 4, "walking": 6, "the": 10}, 10, {"text": 5.0}, 2)
    terms = Analyzer("english").table(words)
    assert dict(terms.items()) == {"the.": 10, "walk": 10}
    assert (terms.documents, terms.lengths, terms.dropped_words) == (10, {"text": 5.0}, 2)


def test_words_that_say_nothing_are_not_held() -> None:
    """Vitamin D, C the language, and places in time and space mean something."""
    assert not any(map(is_lexical, ["the", "what", "does", ",", "。", "a" * 129]))
    assert all(map(is_lexical, ["bees", "d", "c", "under", "before", "not-a-word", "蜂", "a" * 128]))


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
    pieces = WordPieces(toy_model / "vocab.txt")
    found = lexical_words(Document("d", fields), FieldSchema.preset("glow-default"), pieces)
    assert list(found) == ["bees", "!", *(word for number in range(7) for word in ("query", str(number)))]
