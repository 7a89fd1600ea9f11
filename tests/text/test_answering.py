"""Words that answer a query are found at the token that answers, and snippets begin with sentences."""

import re
import time
from collections.abc import Callable, Mapping, Set
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.records import Document
from glow.text import Highlighter, Highlighting, Preprocessor, ReadText, WordPieces, WordSpans, markup
from glow.text.analyzer import is_lexical
from glow.text.highlight import TOKEN_CHARACTERS, answering_words, from_its_sentence
from glow.text.passages import sentence_spans
from glow.text.spans import Window

Make = Callable[..., Preprocessor]
COUNTS = {"the": 10_000, "bees": 5, "home": 2, "find": 50, "hive": 1, "insects": 1}
PARTS = st.sampled_from(
    [*"bees Bees home homes a1b2 be\u200bes Crème cre\u0301me 東 東京 \ud800 \x00 ﬁnd ½ … . - ' 25ing".split(" "),
     " ", "  ", "\n", "\u3000", "x" * 30]
)  # fmt: skip
TEXT = st.lists(st.one_of(PARTS, st.text(max_size=3)), max_size=40).map("".join)


def fixed(found: Mapping[str, int]) -> Callable[[Set[str]], Mapping[str, int]]:
    """Answers that are known: of terms -> tokens."""
    return lambda terms: {term: token for term, token in found.items() if term in terms}


def read_of(text: str, start: int = 0, **found: int) -> ReadText:
    return ReadText("text", start, text, fixed(found))


@given(text=TEXT, start=st.integers(0, 9))
def test_a_token_leads_to_the_word_that_it_is_a_piece_of(pieces: WordPieces, text: str, start: int) -> None:
    """As looking at each word in turn would find it."""
    spans = WordSpans(pieces)
    token, words = 0, list(spans.of_text(text))
    for number, span in enumerate(words):
        for _ in pieces.pieces(span.word):
            found = answering_words(read_of(text, start, bees=token), {"bees", "home"}, spans, pieces)
            expected = [("bees", start + span.start, start + span.end)] if is_lexical(span.word) else []
            reach = TOKEN_CHARACTERS * (token + 2)
            is_far = len(text) > reach and all(each.start >= reach for each in words[number + 1 :])
            assert [tuple(each) for each in found] in ([expected, []] if is_far else [expected])
            token += 1
    assert answering_words(read_of(text, bees=token), {"bees"}, spans, pieces) == []


def test_words_come_in_order_and_none_that_says_nothing(pieces: WordPieces) -> None:
    text, spans = "is , home bee", WordSpans(pieces)
    found = answering_words(
        read_of(text, one=3, two=2, three=1, four=0), {"one", "two", "three", "four"}, spans, pieces
    )
    assert [(each.word, text[each.start : each.end]) for each in found] == [("two", "home"), ("one", "bee")]


def test_a_word_that_is_cut_answers_nothing(pieces: WordPieces) -> None:
    spans = WordSpans(pieces)
    assert answering_words(read_of(" " * 13 + "homestead", hive=0), {"hive"}, spans, pieces) == []
    (found,) = answering_words(read_of(" " * 7 + "homestead", hive=0), {"hive"}, spans, pieces)
    assert (found.start, found.end) == (7, 16)


def window(text: str, words: str, width: int = 60) -> Window:
    """A window around some words of a text, with equal space on both sides."""
    first = text.index(words)
    room = max(width - len(words), 0) // 2
    start, last = max(first - room, 0), first + len(words)
    return Window(1.0, start, min(start + width, len(text)), first, last)


PROSE = "It is late. They come at dusk, when bees fly home to the hive. Then it is dark for the rest of the night."


@pytest.mark.parametrize(
    ("words", "width", "begin"),
    [
        ("fly home", 60, "They come"),
        ("fly home", 30, None),
        ("Then it", 40, "Then it"),
        ("rest of", 60, "Then it"),
        ("late", 12, "It is late."),
        ("is late", 60, None),
    ],
    ids=["fits", "no room", "its first word", "the latest one", "the first one", "begins with the text"],
)
def test_a_window_begins_with_the_sentence_of_its_first_word_if_that_fits(
    words: str, width: int, begin: str | None
) -> None:
    given = window(PROSE, words, width)
    found = from_its_sentence(PROSE, given, [], width)
    if begin is None:
        assert found == given
    else:
        assert PROSE[found.start :].startswith(begin) and found.end - found.start <= width


@given(text=TEXT.map(lambda text: f"It is. {text} bees are. {text}. Then they"), width=st.integers(20, 80))
def test_whatever_the_text_a_window_keeps_its_words_its_width_and_its_distance(text: str, width: int) -> None:
    given = window(text, "bees", width)
    others = [
        Window(0.5, 0, min(given.start, 9), 0, 1),
        Window(0.5, given.end, len(text), given.end, given.end),
    ]
    found = from_its_sentence(text, given, others, width)
    assert others[0].end <= found.start <= found.first <= found.last <= found.end <= others[1].start
    assert (found.first, found.last, found.worth) == (given.first, given.last, given.worth)
    assert found == given or found.end - found.start <= width
    assert found.start == given.start or found.start in {start for start, _ in sentence_spans(text)}


@pytest.fixture(scope="module")
def highlighter(make: Make) -> Highlighter:
    return Highlighter(make(counts=COUNTS, documents=10_000))


def snippets(
    highlighter: Highlighter, text: str, query: str, read: ReadText | None, **options: int
) -> list[str]:
    """Of the field that was read; another one with the same text is cut as ever."""
    fields, shown = {"title": (text,), "text": (text,)}, Highlighting(**options)
    found = highlighter.document(Document("d", fields), query, None, (), shown, None, read)
    assert found["title"] == highlighter.document(Document("d", fields), query, None, (), shown)["title"]
    return [markup(fragment) for fragment in found["text"]]


def test_what_the_text_lacks_is_marked_where_it_is_answered(highlighter: Highlighter) -> None:
    text = "a bee is home"
    assert snippets(highlighter, text, "insects home", None) == ["a bee is <em>home</em>"]
    read = read_of(text, insects=1, home=0)
    assert snippets(highlighter, text, "insects home", read) == ["a <em>bee</em> is <em>home</em>"]
    assert snippets(highlighter, text, "home", read) == ["a bee is <em>home</em>"]


def test_a_word_that_stands_for_two_is_shown_once(highlighter: Highlighter) -> None:
    text = "home is home"
    found = snippets(highlighter, text, "home hive", read_of(text, hive=0))
    assert found == ["<em>home</em> is <em>home</em>"]


def test_a_stretch_that_answers_is_shown_in_place_of_the_head(highlighter: Highlighter) -> None:
    text = "what is home? " * 20 + "the bee is home. " + "what is home? " * 20
    token = 20 * 4 + 1
    shown = {"fragments": 1, "fragment_chars": 40}
    (head,) = snippets(highlighter, text, "insects", None, **shown)
    assert head.startswith("what is home?")
    (found,) = snippets(highlighter, text, "insects", read_of(text, insects=token), **shown)
    assert "the <em>bee</em> is home." in found


def test_what_lies_behind_the_part_that_is_read_is_not_shown(highlighter: Highlighter) -> None:
    text = "home is " * 10 + "bee"
    document, read = Document("d", {"text": (text,)}), read_of(text, insects=20)
    for most, is_marked in ((len(text), True), (len(text) - 1, False)):
        fragments = highlighter.document(document, "insects", None, (), None, most, read)["text"]
        assert any(("bee", "query") in each.parts for each in fragments) == is_marked


@given(
    text=TEXT,
    token=st.integers(0, 30),
    start=st.integers(0, 20),
    fragments=st.integers(1, 3),
    width=st.integers(20, 60),
)
def test_a_snippet_is_a_stretch_of_the_text(
    highlighter: Highlighter, text: str, token: int, start: int, fragments: int, width: int
) -> None:
    if not text.strip():
        return
    read = read_of(text[start:], start, hive=token, insects=token + 1)
    found = snippets(highlighter, text, "bees insects hive", read, fragments=fragments, fragment_chars=width)
    assert 1 <= len(found) <= fragments
    original = re.sub("[\ud800-\udfff]", "\ufffd", text)
    longest = max(map(len, text.split()), default=0)
    for snippet in found:
        plain = unescape(re.sub("</?em>", "", snippet))
        if "…" not in text:
            plain = plain.removeprefix("… ").removesuffix(" …")
            assert len(plain) <= max(width, longest)
            assert plain in original


def test_hostile_texts_take_time_in_proportion(highlighter: Highlighter) -> None:
    def seconds(text: str) -> float:
        found = []
        for _ in range(3):
            begin = time.thread_time()
            snippets(highlighter, text, "bees insects hive", read_of(text, insects=40, hive=120))
            found.append(time.thread_time() - begin)
        return min(found)

    for part in ("a. ", "é. B", "home ", "東京。", ". " * 50 + "x" * 900, "\n\n-", "bees. "):
        short, long = (seconds((part * 100_000)[:length]) for length in (25_000, 100_000))
        assert long < 8 * short + 0.02, part
