"""TREC run files: what is written is read back; what is no run is refused by line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glow.errors import InputError, RecordError
from glow.evaluation import read_run, write_run
from glow.records import Hit

IDS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=8).filter(
    lambda text: text.split() == [text]
)
SCORES = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6).map(
    lambda scores: sorted(scores, reverse=True)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_a_run_round_trips_with_every_digit_and_order_of_ties(tmp_path: Path, data: st.DataObject) -> None:
    scores = data.draw(st.dictionaries(IDS, SCORES.filter(bool), max_size=4))
    run = {}
    for query, values in scores.items():
        documents = data.draw(st.lists(IDS, unique=True, min_size=len(values), max_size=len(values)))
        run[query] = [Hit(document, score) for document, score in zip(documents, values, strict=True)]
    write_run(tmp_path / "run.trec", run, "tag")
    assert read_run(tmp_path / "run.trec") == run


def test_a_line_has_the_six_columns_of_trec(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    write_run(path, {"q/1": [Hit("d:1", 0.5), Hit("d2", 0.25)], "silent": []}, "glow mini@sha256:ab")
    assert path.read_text().splitlines() == [
        "q/1 Q0 d:1 1 0.5 glow_mini@sha256:ab",
        "q/1 Q0 d2 2 0.25 glow_mini@sha256:ab",
    ]


def test_the_score_decides_the_order_and_the_rank_breaks_ties(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    path.write_text("q Q0 a 3 1.0 t\nq Q0 b 1 1.0 t\n\nq\tQ0\tc 9 2.0 t\n")
    assert [hit.document_id for hit in read_run(path)["q"]] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 d 1 0.5", "line 2: expected `query-id Q0"),
        ("q Q0 d one 0.5 tag", "line 2: expected `query-id Q0"),
        ("q Q0 d 1 high tag", "line 2: expected `query-id Q0"),
        ("q Q0 d 1 nan tag", "line 2: the score is not a number"),
        ("q Q0 first 2 0.1 tag", "query q has document first twice"),
    ],
)
def test_what_is_no_run_is_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.trec"
    path.write_text(f"q Q0 first 1 0.9 tag\n{line}\n")
    with pytest.raises(RecordError, match=message):
        read_run(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.trec").write_bytes(b"q Q0 \xff 1 0.5 tag\n")
    with pytest.raises(RecordError, match="not UTF-8"):
        read_run(tmp_path / "bad.trec")


def test_a_missing_file_and_an_unwritable_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*no\.trec"):
        read_run(tmp_path / "no.trec")
    with pytest.raises(InputError, match=r"cannot write .*run\.trec"):
        write_run(tmp_path / "no" / "run.trec", {}, "tag")


def test_an_id_with_white_space_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="'two words'"):
        write_run(tmp_path / "run.trec", {"q": [Hit("two words", 1.0)]}, "tag")
