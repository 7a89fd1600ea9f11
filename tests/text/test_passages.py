"""Passages hold all of a body, in order and within the budget."""

import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, Weighting, WordPieces
from glow.text.passages import (
    BLANKS,
    PassageCutter,
    PassageOptions,
    body_field,
    body_text,
    passage_document,
    sentence_spans,
)
from glow.text.words import Unit

Make = Callable[..., Preprocessor]
SMALL = FieldSchema(
    name="small",
    query_tokens=8,
    document_tokens=40,
    fields=(FieldSpec(name="title", tokens=12), FieldSpec(name="text", tokens=40)),
)
PARTS = [
    "The bee is home. ", "is ", "Dr. ", "what", "日日日", "。", "\n\n", "\u00a0", "e\u0301", "-", "x" * 45,
]  # fmt: skip
BODIES = st.lists(st.sampled_from(PARTS) | st.text(max_size=12), max_size=60).map("".join)


def document(body: str, *more: str, title: str = "bees") -> Document:
    return Document("d", {"title": (title,), "text": (body, *more)}, {"year": 2024})


@pytest.mark.parametrize("unit", ["word", "piece"])
@given(body=BODIES, title=st.sampled_from(["", "bee", "the bee is home " * 9]))
def test_passages_cover_the_body_in_order_and_whole(make: Make, unit: Unit, body: str, title: str) -> None:
    preprocessor = make(SMALL, Weighting(unit=unit))
    preprocessor.pieces = WordPieces(preprocessor.pieces.vocabulary, unit)
    cutter = PassageCutter(preprocessor, PassageOptions(limit=10_000))
    whole = document(body, title=title)
    cut = cutter.cut(whole)
    assert not cut.left_out
    covered = 0
    previous = (-1, -1)
    for start, end in cut.spans:
        assert not body[covered:start].strip()
        assert start > previous[0] and end > previous[1]
        assert start >= covered
        covered, previous = end, (start, end)
        passage = passage_document(whole, "text", start, end)
        assert passage.fields["text"] == (body[start:end],)
        assert replace(passage, fields={}) == replace(whole, fields={})
        assert passage.fields["title"] == (title,)
        assert "text" not in preprocessor.document(passage).dropped_words
    assert not body[covered:].strip()
    if "text" not in preprocessor.document(whole).dropped_words:
        assert cutter.passages(whole) == [whole]


def test_a_document_that_fits_is_its_only_passage(make: Make) -> None:
    cutter = PassageCutter(make(SMALL))
    for whole in (document("The bee is home. "), document(""), Document("d", {"title": ("bees",)})):
        (passage,) = cutter.passages(whole)
        assert passage is whole


SENTENCE = "The bee is home."


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        # Of 40 tokens [CLS], three of the title and its [SEP], and a [SEP] leave 35: seven sentences of five words.
        (f"{SENTENCE} " * 14, [" ".join([SENTENCE] * 7)] * 2),
        (" ".join(["bee"] * 50), [" ".join(["bee"] * count) for count in (35, 15)]),
        ("日" * 100, ["日" * 35, "日" * 35, "日" * 30]),
        # A letter is a token here: 45 of them do not fit into 35, so parts of 11 characters are separate.
        ("is " + "x" * 45 + " home", ["is", *["x" * 11] * 4, "x", "home"]),
    ],
    ids=["sentences", "words", "ideographs", "inside a word"],
)
def test_passages_are_as_full_as_fits_and_cut_where_it_harms_least(
    make: Make, body: str, texts: list[str]
) -> None:
    found = PassageCutter(make(SMALL)).passages(document(body))
    assert [passage.fields["text"][0] for passage in found] == texts


def test_values_of_a_list_are_one_body_joined_by_line_feeds(make: Make) -> None:
    whole = document("The bee is home. " * 5, "what is the bee " * 8)
    text = body_text(whole, "text")
    assert text == "\n".join(whole.fields["text"])
    spans = PassageCutter(make(SMALL)).cut(whole).spans
    assert len(spans) == 2
    assert [text[start:end].count("home") for start, end in spans] == [5, 0]


def test_passages_beyond_the_limit_are_left_out_and_told(make: Make) -> None:
    whole = document("The bee is home. " * 20)
    every = PassageCutter(make(SMALL)).cut(whole)
    some = PassageCutter(make(SMALL), PassageOptions(limit=2)).cut(whole)
    assert (len(every.spans), every.left_out) == (3, False)
    assert (some.spans, some.left_out) == (every.spans[:2], True)


def test_a_body_with_hardly_any_room_stays_whole(make: Make) -> None:
    """Crumbs of five words beside a title of thirty would all have about the same vector."""
    schema = SMALL.model_copy(update={"fields": (FieldSpec(name="title", tokens=34), SMALL.fields[1])})
    whole = document("The bee is home. " * 20, title="the bee is home " * 9)
    cutter = PassageCutter(make(schema))
    assert cutter.passages(whole) == [whole]
    assert cutter.sizes(whole, ["the"] * 40) == (40, 0)


def test_the_body_is_the_text_field_of_the_largest_budget_or_the_named_one() -> None:
    presets = ("glow-default", "glow-msmarco", "bison-msmarco")
    assert [body_field(FieldSchema.preset(name)) for name in presets] == ["text", "text", "title"]
    assert body_field(FieldSchema.preset("glow-default"), "title") == "title"


def test_what_is_no_running_text_and_no_limit_is_refused() -> None:
    for name in ("url", "anchor", "missing"):
        with pytest.raises(ConfigError, match=f"no field '{name}'.*title, text"):
            body_field(FieldSchema.preset("glow-default"), name)
    schema = SMALL.model_copy(update={"fields": (FieldSpec(name="url", tokens=9, kind="url"),)})
    with pytest.raises(ConfigError, match="build without passages"):
        body_field(schema)
    with pytest.raises(ConfigError, match="expected limit >= 1, found 0"):
        PassageOptions(limit=0)


def cpu_s(work: Callable[[], object]) -> float:
    """The least of three: a collection of garbage belongs to nobody."""
    took = []
    for _ in range(3):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took)


@pytest.mark.parametrize("hostile", ["a", "a ", "日", "é", ".", "a-", "\u0301", "x" * 60 + " "])
def test_a_hostile_body_takes_linear_time(make: Make, hostile: str) -> None:
    cutter = PassageCutter(make(SMALL))
    cutter.cut(document(hostile))
    # Eight times the text; a quadratic cut would take 64 times as long.
    short, long = (document((hostile * length)[:length]) for length in (5_000, 40_000))
    assert cpu_s(lambda: cutter.cut(long)) < 40 * max(cpu_s(lambda: cutter.cut(short)), 0.01)


MARKS = st.sampled_from([*" \n\t\u00a0.!?。！”)-•1a.éA日\u0301\x1c", "Dr. ", "3.5 ", "e.g. ", "\n\n", "1. "])


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["Bees dance.", "They show the way!", "Do they?", "Yes…", "They do."],
        ["Dr. A. Smith et al. found it, cf. Fig. 3 and No. 7, in the U.S. in 1999.", "Then came J. R. Doe."],
        ["It is 3.5 cm long, about .5 in.", "That is all."],
        ['"It works."', "(See below.)", "He said “no.”", "Then he left."],
        ["The web site e.g. example.org is up vs. down.", "Version 1.2.3 is out."],
        ["Is it no. 5 or No. 6?", "The answer is no.", "Why not?"],
        ["We met Yahoo! in town and left."],
        ["Take one.", "- Rest well.", "- Drink water."],
        ["El fin.", "¿Por qué?", "Élan vital."],
        ["Это конец.", "Новое начало."],
        ["यह अंत है।", "यह शुरू है।"],
        ["هل هذا؟", "نعم هذا۔", "نعم"],
        ["1. Open the lid.", "2. Close it."],
        ["no end at all and on it goes"],
    ],
)
def test_a_text_is_cut_where_its_sentences_end(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("蜂は踊る。「道を示す！」そして？a.b", ["蜂は踊る。", "「道を示す！」", "そして？", "a.b"]),
        (
            "A heading\n\nits text\nof two lines\n- one\n- two • three\n1. four\n(b) five",
            ["A heading", "its text\nof two lines", "- one", "- two", "• three", "1. four", "(b) five"],
        ),
        ("", []),
        (" \n\t\u3000", []),
    ],
)
def test_ideographs_lines_and_bullets_end_a_sentence_too(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.lists(MARKS | st.text(max_size=5), max_size=40).map("".join))
def test_spans_are_in_order_and_hold_every_character_that_is_no_blank(text: str) -> None:
    end = 0
    for start, stop in sentence_spans(text):
        assert re.fullmatch(f"[{BLANKS}]*", text[end:start]) is not None
        assert re.fullmatch(f"[^{BLANKS}]|[^{BLANKS}].*[^{BLANKS}]", text[start:stop], re.DOTALL)
        end = stop
    assert re.fullmatch(f"[{BLANKS}]*", text[end:]) is not None


@pytest.mark.parametrize(
    "hostile", [".", "!a", "。", ". ", "a. ", "(" * 9 + "." * 9 + " ", "\n", "•", '"', "1. "]
)
def test_a_hostile_text_takes_linear_time(hostile: str) -> None:
    short, long = ((hostile * length)[:length] for length in (25_000, 200_000))
    assert cpu_s(lambda: sentence_spans(long)) < 40 * max(cpu_s(lambda: sentence_spans(short)), 0.01)
