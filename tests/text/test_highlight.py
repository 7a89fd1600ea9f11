"""Snippets: which words and stretches are shown, and that no text can get out of them as markup."""

import re
import time
from collections.abc import Callable
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.errors import ConfigError
from glow.records import Document
from glow.text import (
    Analyzer,
    Highlighter,
    Highlighting,
    Preprocessor,
    markup,
)
from glow.text.highlight import SEARCHED_CHARACTERS, from_its_sentence
from glow.text.passages import sentence_spans
from glow.text.spans import Window

Make = Callable[..., Preprocessor]
FILLER = "nothing of it here, "
TAG = re.compile(r'<em>|<em class="attended">|</em>')
COUNTS = {"the": 10_000, "bees": 5, "home": 2, "find": 50, "hive": 1}


@pytest.fixture(scope="module")
def highlighter(make: Make) -> Highlighter:
    return Highlighter(make(counts=COUNTS, documents=10_000))


def snippets(
    highlighter: Highlighter, text: str | tuple[str, ...], query: str, *attended: str, **options: int
) -> list[str]:
    values = (text,) if isinstance(text, str) else text
    document, shown = Document("d", {"text": values}), Highlighting(**options)
    found = highlighter.document(document, query, None, attended, shown)
    return [markup(fragment) for fragment in found.get("text", [])]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("The BEES find", "bees", "The <em>BEES</em> find"),
        ("Café, cafe\u0301!", "CAFE", "<em>Café</em>, <em>cafe\u0301</em>!"),
        ("go to 東京 now", "京", "go to 東<em>京</em> now"),
        ("한국어 text", "한국어", "<em>한국어</em> text"),
        ("beeswax, xbees, bees.", "bees", "beeswax, xbees, <em>bees</em>."),
        ("a\ud800bees", "bees", "a\ufffd<em>bees</em>"),
        ("be\u200bes", "bees", "<em>be\u200bes</em>"),
        ("  padded bees \n", "bees", "padded <em>bees</em>"),
        ("nothing of it", "bees", "nothing of it"),
        # "how" is rarer than "find" here: manuals ask nothing. It still says nothing of the matter.
        ("how bees find home", "how do bees find the way", "how <em>bees</em> <em>find</em> home"),
        ("to be or not", "to be or not to be", "<em>to</em> <em>be</em> <em>or</em> <em>not</em>"),
        # A document cannot smuggle markup in.
        ("<script>alert(1)</script>", "alert", "&lt;script&gt;<em>alert</em>(1)&lt;/script&gt;"),
        ("<em>bees</em>", "em bees", "&lt;<em>em</em>&gt;<em>bees</em>&lt;/<em>em</em>&gt;"),
        ("\"><img src=x onerror='x'>", "img", "&quot;&gt;&lt;<em>img</em> src=x onerror=&#x27;x&#x27;&gt;"),
        ("&lt;b&gt; &amp; bees", "lt bees", "&amp;<em>lt</em>;b&amp;gt; &amp;amp; <em>bees</em>"),
    ],
)
def test_words_are_found_as_preprocessing_sees_them(
    highlighter: Highlighter, text: str, query: str, expected: str
) -> None:
    assert snippets(highlighter, text, query) == [expected]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("A hive; HIVES, hived.", "hives", "A <em>hive</em>; <em>HIVES</em>, <em>hived</em>."),
        ("Cafés and a café", "cafe", "<em>Cafés</em> and a <em>café</em>"),
        ("beeswax, bee", "bees", "beeswax, <em>bee</em>"),
        ("finding homes", "find the home", "<em>finding</em> <em>homes</em>"),
    ],
)
def test_where_the_index_holds_stems_every_form_of_a_word_is_marked(
    make: Make, text: str, query: str, expected: str
) -> None:
    highlighter = Highlighter(make(counts=COUNTS, documents=10_000), Analyzer("english"))
    assert snippets(highlighter, text, query) == [expected]


def test_attended_words_are_marked_in_every_form_too(make: Make) -> None:
    highlighter = Highlighter(make(counts=COUNTS, documents=10_000), Analyzer("english"))
    assert snippets(highlighter, "bees and a hive", "bee", "hives") == [
        '<em>bees</em> and a <em class="attended">hive</em>'
    ]


PIECES = st.sampled_from([
    "bees", " ", "home ", "<em>", "</em>", "&amp;", "<script>", "…", "é", "\u0301", "東", "\ud800", "\x00",
    "\n", "x" * 60,
])  # fmt: skip
TEXT = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    text=TEXT,
    query=st.one_of(st.just("bees home 東"), st.text(max_size=10)),
    fragments=st.integers(1, 4),
    width=st.integers(20, 60),
)
def test_a_snippet_is_a_stretch_of_the_text_and_nothing_else(
    highlighter: Highlighter, text: str, query: str, fragments: int, width: int
) -> None:
    found = snippets(highlighter, text, query, "hive", fragments=fragments, fragment_chars=width)
    assert bool(found) == bool(text.strip())
    assert len(found) <= fragments
    original = re.sub("[\ud800-\udfff]", "\ufffd", text)
    place = 0
    for snippet in found:
        bare = TAG.sub("", snippet)
        assert not re.search("[<>\"']|&(?!amp;|lt;|gt;|quot;|#x27;)", bare)
        assert len(TAG.findall(snippet)) % 2 == 0
        plain = unescape(bare)
        stretches = {plain, plain.removeprefix("… "), plain.removesuffix(" …")}
        stretches.add(plain.removeprefix("… ").removesuffix(" …"))
        places = [original.find(stretch, place) for stretch in stretches if stretch in original[place:]]
        assert places  # in the text's order, and not overlapping
        assert min(map(len, stretches)) <= width + max(max(map(len, original.split()), default=0), len(query))
        place = min(places) + 1


def test_the_stretch_with_the_rarest_different_words_is_shown(highlighter: Highlighter) -> None:
    text = FILLER * 5 + "bees " * 9 + FILLER * 20 + "bees go home " + FILLER * 20
    (found,) = snippets(highlighter, text, "bees home", fragments=1, fragment_chars=40)
    assert "<em>bees</em> go <em>home</em>" in found
    assert found.startswith("… ")
    assert found.endswith(" …")
    first, second = snippets(highlighter, text, "bees home", fragments=2, fragment_chars=40)
    assert "go" not in first  # in reading order
    assert second == found


@pytest.mark.parametrize("width", range(20, 50))
def test_a_stretch_is_cut_where_words_end(highlighter: Highlighter, width: int) -> None:
    words = FILLER.replace(",", "").split()
    text = f"{' '.join(words * 5)} bees {' '.join(words * 5)}"
    (found,) = snippets(highlighter, text, "bees", fragments=1, fragment_chars=width)
    assert set(TAG.sub("", found).split()) <= {*words, "bees", "…"}
    assert "<em>bees</em>" in found
    assert width - 2 * len("nothing ") < len(TAG.sub("", found)) - len("… ") - len(" …") <= width


def test_a_script_without_blanks_is_cut_between_its_characters(highlighter: Highlighter) -> None:
    (found,) = snippets(highlighter, "東" * 30 + "京" + "東" * 30, "京", fragments=1, fragment_chars=20)
    assert len(TAG.sub("", found)) == 20 + len("… ") + len(" …")


def test_common_words_beside_rare_ones_and_punctuation_stay_unmarked(highlighter: Highlighter) -> None:
    assert snippets(highlighter, "the bees!", "the bees!") == ["the <em>bees</em>!"]
    assert snippets(highlighter, "the one", "the") == ["<em>the</em> one"]


def test_attended_words_are_marked_apart_and_lead_only_without_query_words(highlighter: Highlighter) -> None:
    hive, bees = '<em class="attended">hive</em>', "<em>bees</em>"
    assert snippets(highlighter, "hive of bees", "bees", "hive", "bees") == [f"{hive} of {bees}"]
    far = "hive " * 3 + FILLER * 30 + "bees"
    assert hive not in "".join(snippets(highlighter, far, "bees", "hive", fragments=1, fragment_chars=40))
    (found,) = snippets(highlighter, FILLER * 30 + "hive", "bees", "hive", fragments=2, fragment_chars=40)
    assert hive in found


def test_of_several_values_the_best_are_shown_each_by_itself(highlighter: Highlighter) -> None:
    found = snippets(highlighter, ("about bees", "no word", "bees go home", " ", "home of bees"), "bees home")
    assert found == ["<em>bees</em> go <em>home</em>", "<em>home</em> of <em>bees</em>"]
    assert snippets(highlighter, ("one", "two"), "bees") == ["one"]


def test_only_fields_that_the_document_has_are_answered(highlighter: Highlighter) -> None:
    fields = {"title": ("Bees",), "url": ("https://x.org/honey-bees/2",), "text": (" ",), "anchor": ()}
    document = Document("d", fields)
    found = highlighter.document(document, "bees", ["url", "text", "anchor", "title", "absent"])
    assert {name: [markup(one) for one in fragments] for name, fragments in found.items()} == {
        "url": ["https://x.org/honey-<em>bees</em>/2"],
        "title": ["<em>Bees</em>"],
    }
    assert list(highlighter.document(document, "bees")) == ["title", "url"]


def test_sizes_that_cannot_be_meant_are_refused() -> None:
    for options in ({"fragments": 0}, {"fragment_chars": 19}):
        with pytest.raises(ConfigError, match="found"):
            Highlighting(**options)


@pytest.mark.parametrize("text", ["the bees go home. ", "東京", "<bees>&", "é", "x"])
def test_a_megabyte_takes_a_bounded_time(highlighter: Highlighter, text: str) -> None:
    million = text * (1_000_000 // len(text))
    started = time.process_time()
    snippets(highlighter, million, "bees home 東 e")
    assert time.process_time() - started < 3  # .02 to .3 s; whatever grows faster than the text takes minutes
    assert snippets(highlighter, "x " * SEARCHED_CHARACTERS + "bees", "bees")[0].startswith("x x")


ANSWER_COUNTS = {"the": 10_000, "bees": 5, "home": 2, "find": 50, "hive": 1, "insects": 1}
PARTS = st.sampled_from(
    [*"bees Bees home homes a1b2 be\u200bes Crème cre\u0301me 東 東京 \ud800 \x00 ﬁnd ½ … . - ' 25ing".split(" "),
     " ", "  ", "\n", "\u3000", "x" * 30]
)  # fmt: skip
ANSWER_TEXT = st.lists(st.one_of(PARTS, st.text(max_size=3)), max_size=40).map("".join)


def window(text: str, words: str, width: int = 60) -> Window:
    """A window around some words of a text, with equal space on both sides."""
    first = text.index(words)
    start, last = max(first - (max(width - len(words), 0) // 2), 0), first + len(words)
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
def test_a_window_begins_with_its_sentence_if_that_fits(words: str, width: int, begin: str | None) -> None:
    given = window(PROSE, words, width)
    found = from_its_sentence(PROSE, given, [], width)
    if begin is None:
        assert found == given
    else:
        assert PROSE[found.start :].startswith(begin) and found.end - found.start <= width


@given(
    text=ANSWER_TEXT.map(lambda text: f"It is. {text} bees are. {text}. Then they"), width=st.integers(20, 80)
)
def test_whatever_the_text_a_window_keeps_its_words_its_width_and_its_distance(text: str, width: int) -> None:
    given = window(text, "bees", width)
    before = Window(0.5, 0, min(given.start, 9), 0, 1)
    others = [before, Window(0.5, given.end, len(text), given.end, given.end)]
    found = from_its_sentence(text, given, others, width)
    assert others[0].end <= found.start <= found.first <= found.last <= found.end <= others[1].start
    assert (found.first, found.last, found.worth) == (given.first, given.last, given.worth)
    assert found == given or found.end - found.start <= width
    assert found.start == given.start or found.start in {start for start, _ in sentence_spans(text)}


@pytest.fixture(scope="module")
def answer_highlighter(make: Make) -> Highlighter:
    return Highlighter(make(counts=ANSWER_COUNTS, documents=10_000))


@given(text=ANSWER_TEXT, fragments=st.integers(1, 3), width=st.integers(20, 60))
def test_a_snippet_is_a_stretch_of_the_text(
    answer_highlighter: Highlighter, text: str, fragments: int, width: int
) -> None:
    if not text.strip():
        return
    shown = {"fragments": fragments, "fragment_chars": width}
    found = snippets(answer_highlighter, text, "bees insects hive", **shown)
    assert 1 <= len(found) <= fragments
    original = re.sub("[\ud800-\udfff]", "\ufffd", text)
    longest = max(map(len, text.split()), default=0)
    for snippet in found:
        plain = unescape(re.sub("</?em>", "", snippet))
        if "…" not in text:
            plain = plain.removeprefix("… ").removesuffix(" …")
            assert len(plain) <= max(width, longest)
            assert plain in original


def test_hostile_texts_take_time_in_proportion(answer_highlighter: Highlighter) -> None:
    def seconds(text: str) -> float:
        found = []
        for _ in range(3):
            begin = time.thread_time()
            snippets(answer_highlighter, text, "bees insects hive")
            found.append(time.thread_time() - begin)
        return min(found)

    for part in ("a. ", "é. B", "home ", "東京。", ". " * 50 + "x" * 900, "\n\n-", "bees. "):
        short, long = (seconds((part * 100_000)[:length]) for length in (25_000, 100_000))
        assert long < 8 * short + 0.02, part
