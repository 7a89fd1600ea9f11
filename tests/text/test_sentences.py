"""Sentences end where a reader would say so, in many scripts, and no character is lost."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.text.passages import BLANKS, sentence_spans

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


def test_ideographic_marks_end_a_sentence_without_a_blank() -> None:
    assert sentences("蜂は踊る。「道を示す！」そして？a.b") == [
        "蜂は踊る。",
        "「道を示す！」",
        "そして？",
        "a.b",
    ]


def test_blank_lines_and_bullets_end_a_sentence_without_a_mark() -> None:
    text = "A heading\n\nits text\nof two lines\n- one\n- two • three\n1. four\n(b) five"
    expected = ["A heading", "its text\nof two lines", "- one", "- two", "• three", "1. four", "(b) five"]
    assert sentences(text) == expected


@pytest.mark.parametrize("text", ["", " \n\t\u3000"])
def test_a_text_without_words_has_no_sentence(text: str) -> None:
    assert sentences(text) == []


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
    def seconds(length: int) -> float:
        text = (hostile * length)[:length]
        started = time.process_time()
        sentence_spans(text)
        return time.process_time() - started

    seconds(1000)
    # Eight times the text; a quadratic cut would take 64 times as long.
    assert seconds(200_000) < 40 * max(seconds(25_000), 0.01)
