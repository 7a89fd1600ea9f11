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
from glow.text import Analyzer, Preprocessor
from glow.text.highlight import SEARCHED_CHARACTERS, Highlighter, Highlighting, markup

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
    found = highlighter.document(
        Document("d", {"text": values}), query, None, attended, Highlighting(**options)
    )
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
    ],
)
def test_words_are_found_as_preprocessing_sees_them(
    highlighter: Highlighter, text: str, query: str, expected: str
) -> None:
    assert snippets(highlighter, text, query) == [expected]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("<script>alert(1)</script>", "alert", "&lt;script&gt;<em>alert</em>(1)&lt;/script&gt;"),
        ("<em>bees</em>", "em bees", "&lt;<em>em</em>&gt;<em>bees</em>&lt;/<em>em</em>&gt;"),
        ("\"><img src=x onerror='x'>", "img", "&quot;&gt;&lt;<em>img</em> src=x onerror=&#x27;x&#x27;&gt;"),
        ("&lt;b&gt; &amp; bees", "lt bees", "&amp;<em>lt</em>;b&amp;gt; &amp;amp; <em>bees</em>"),
    ],
)
def test_a_document_cannot_smuggle_markup_in(
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


PIECES = st.sampled_from(
    [
        "bees",
        " ",
        "home ",
        "<em>",
        "</em>",
        "&amp;",
        "<script>",
        "…",
        "é",
        "\u0301",
        "東",
        "\ud800",
        "\x00",
        "\n",
        "x" * 60,
    ]
)
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
        longest = max(max(map(len, original.split()), default=0), len(query))
        assert min(map(len, stretches)) <= width + longest
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


def test_attended_words_are_marked_apart_and_lead_only_where_no_query_word_is(
    highlighter: Highlighter,
) -> None:
    hive, bees = '<em class="attended">hive</em>', "<em>bees</em>"
    assert snippets(highlighter, "hive of bees", "bees", "hive", "bees") == [f"{hive} of {bees}"]
    far = "hive " * 3 + FILLER * 30 + "bees"
    assert hive not in "".join(snippets(highlighter, far, "bees", "hive", fragments=1, fragment_chars=40))
    (found,) = snippets(highlighter, FILLER * 30 + "hive", "bees", "hive", fragments=2, fragment_chars=40)
    assert hive in found


def test_of_several_values_the_best_are_shown_each_by_itself(highlighter: Highlighter) -> None:
    values = ("about bees", "no word", "bees go home", " ", "home of bees")
    found = snippets(highlighter, values, "bees home")
    assert found == ["<em>bees</em> go <em>home</em>", "<em>home</em> of <em>bees</em>"]
    assert snippets(highlighter, ("one", "two"), "bees") == ["one"]


def test_only_fields_that_the_document_has_are_answered(highlighter: Highlighter) -> None:
    document = Document(
        "d", {"title": ("Bees",), "url": ("https://x.org/honey-bees/2",), "text": (" ",), "anchor": ()}
    )
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
