"""Words with their places: the same words as preprocessing yields, and the characters that they were written with."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from unicodedata import category, combining

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.records import Document
from glow.schema import FieldSpec
from glow.text import Analyzer, AnalyzerName, Preprocessor, WordPieces, WordSpans
from glow.text.highlight import LEAST_WORTH, Highlighter, Highlighting
from glow.text.spans import SEEN_SHARE, Span, best_windows
from glow.text.words import url_runs

# Canonical order moves marks that stay in a word; it then differs in the order of such marks alone.
MOVED = "".join(mark for mark in map(chr, range(0x110000)) if combining(mark) and category(mark) != "Mn")
ODD = ["İ", "ß", "한", "東", "の", "\u0301", "\x00", "\u200b", "\ud800", "\ufffd", "\u00a0", "ﬁ", "…", "¿"]
CHARACTERS = st.characters(exclude_characters=MOVED)
TEXT = st.text(st.one_of(CHARACTERS, st.sampled_from("ab. \t\n"), st.sampled_from(ODD)))


@pytest.fixture(scope="module")
def spans(pieces: WordPieces) -> WordSpans:
    return WordSpans(pieces)


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_words_are_those_of_preprocessing_and_their_places_follow(spans: WordSpans, text: str) -> None:
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
def test_a_word_is_found_as_written_with_its_accents(spans: WordSpans, text: str, words: list[str]) -> None:
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


Make = Callable[..., Preprocessor]
COUNTS = {"the": 10_000, "bees": 5, "home": 2, "find": 50, "hive": 1}
QUERY = "the bees' hives find homes, crème 東"


@pytest.fixture(scope="module", params=["plain", "english"])
def highlighter(request: pytest.FixtureRequest, make: Make) -> Highlighter:
    return Highlighter(make(counts=COUNTS, documents=10_000), Analyzer(request.param))


WORDS = st.sampled_from(
    [*"the bees bee BEES hive hives hiving find finding home homes Crème creme cre\u0301me 東 東京 x".split(),
     "be\u200bes", "bees\u0301", "é", "\ud800", "\x00", "İ", "ß", "ﬁnd", "½", "…", "filler"]
)  # fmt: skip
GAPS = st.sampled_from([" ", "  ", ". ", ",", "\n", "\t", "", "-", " of no use at all ", "\u00a0", "\u3000"])
PARTS = st.lists(
    st.one_of(WORDS, GAPS, st.tuples(WORDS, GAPS).map("".join), st.text(max_size=4)), max_size=60
)
FOUND_TEXT = st.tuples(PARTS, st.integers(1, 4), st.integers(0, 1_100)).map(
    lambda made: ("".join(made[0]) + " " * made[2]) * made[1]
)


@settings(max_examples=200, deadline=None)
@given(text=FOUND_TEXT)
@pytest.mark.parametrize("name", ["plain", "english"])
def test_every_word_of_the_query_is_marked_whatever_stands_around_it(
    make: Make, pieces: WordPieces, name: AnalyzerName, text: str
) -> None:
    """One snippet as long as the text marks just what looking at each word in turn would mark."""
    analyzer = Analyzer(name)
    highlighter = Highlighter(make(counts=COUNTS, documents=10_000), analyzer)
    terms = highlighter.query_terms(QUERY)
    words = WordSpans(pieces).of_text(text)
    marked = [text[at.start : at.end] for at in words if analyzer.term(at.word) in terms]
    whole = Highlighting(fragments=1, fragment_chars=max(len(text), 20))
    found = highlighter.document(Document("d", {"text": (text,)}), QUERY, ["text"], (), whole).get("text", [])
    assert [part for fragment in found for part, mark in fragment.parts if mark] == marked


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30)), max_size=60),
    width=st.integers(20, 90),
)
def test_the_best_windows_are_those_of_looking_at_every_run(steps: list[tuple[str, int]], width: int) -> None:
    place, spans = 0, []
    for word, gap in steps:
        spans.append(Span(word, place, place + 1))
        place += 1 + gap
    held = {span.word for span in spans}
    worths = {"a": 3.0, "b": 2.0, "c": 0.5, "d": LEAST_WORTH}
    worth = {word: value for word, value in worths.items() if word in held}
    found = best_windows(spans, worth, 3, width, place + 1)
    shown: set[str] = set()
    for window in found:
        now = {word: value * (SEEN_SHARE if word in shown else 1.0) for word, value in worth.items()}
        assert (window.first, window.last) == slow_best(spans, now, width)
        shown |= {span.word for span in spans if window.first <= span.start and span.end <= window.last}
        spans = [span for span in spans if span.end <= window.start or span.start >= window.end]
    assert len(found) == 3 or not spans


def slow_best(spans: Sequence[Span], worth: Mapping[str, float], width: int) -> tuple[int, int]:
    """Bounds of the run within `width` whose different words are worth most, the earliest of equals."""
    best, bounds = -1.0, (0, 0)
    for end, last in enumerate(spans):
        run = [span for span in spans[: end + 1] if last.end - span.start <= width]
        value = sum(worth[word] for word in {span.word for span in run})
        if value > best + 1e-9:
            best, bounds = value, (run[0].start, last.end)
    return bounds


@given(word=st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20))
def test_a_stem_begins_as_its_word(word: str) -> None:
    """Words that begin otherwise than a term are not looked at."""
    assert Analyzer("english").term(word)[:1] == word[:1]


@pytest.mark.parametrize(
    "text",
    [
        "Bees of the hive find home. ",
        "nothing of use in here, ",
        "Café crème brûlée. ",
        "東京は日本",
        "é ",
        "a.b-",
    ],
)
def test_a_long_text_costs_little_more_than_its_words(make: Make, pieces: WordPieces, text: str) -> None:
    """Every word as a span of its own was 13 to 60 times that, and is 0.9 to 4 times."""
    long = text * (100_000 // len(text))
    spans, highlighter = WordSpans(pieces), Highlighter(make(counts=COUNTS, documents=10_000))
    document = Document("d", {"text": (long,)})

    def cpu_s(work: Callable[[], object]) -> float:
        found = []
        for _ in range(5):
            started = time.thread_time()
            work()
            found.append(time.thread_time() - started)
        return min(found)

    least = cpu_s(lambda: spans.different_words(long))
    assert cpu_s(lambda: highlighter.document(document, "bees find the home")) < 8 * least


def test_what_a_document_may_cost_is_bounded_and_its_short_fields_come_first(make: Make) -> None:
    highlighter = Highlighter(make(counts=COUNTS, documents=10_000))
    document = Document("d", {"text": ("x " * 500 + "bees",), "title": ("Bees",)})

    def marked(most: int) -> dict[str, bool]:
        found = highlighter.document(document, "bees", ["text", "title"], (), None, most)
        return {
            name: any(mark for fragment in each for _, mark in fragment.parts) for name, each in found.items()
        }

    assert highlighter.characters(document, ["text", "title", "anchor"]) == 1_008
    assert marked(1_008) == {"text": True, "title": True}
    assert marked(900) == {"text": False, "title": True}
    assert marked(0) == {"text": False, "title": False}
