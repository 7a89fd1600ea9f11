"""Corpora, splits, relevance judgments and TREC runs: what is written is read back, what does not fit is refused by line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glow.errors import InputError, RecordError
from glow.evaluation import Corpus, find_tasks, read_judgements, read_run, write_run
from glow.records import Hit, Qrel

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder of two documents and three judged queries in two splits."""
    data = tmp_path / "bees"
    (data / "qrels").mkdir(parents=True)
    (data / "corpus.jsonl").write_text('{"_id": "a", "title": "bees"}\n{"_id": "b", "text": "honey"}\n')
    (data / "queries.jsonl").write_text(
        "".join(f'{{"_id": "q{number}", "text": "query {number}"}}\n' for number in range(4))
    )
    (data / "qrels" / "dev.tsv").write_text(f"{HEADER}q2\ta\t1\nq0\tb\t0\nq2\tb\t2\n")
    (data / "qrels" / "other.tsv").write_text(f"{HEADER}q1\ta\t1\n")
    return data


def test_a_task_holds_the_judged_queries_in_the_order_of_the_judgments(folder: Path) -> None:
    (task,) = find_tasks(folder, ["dev"])
    assert (task.data, task.split, len(task.qrels)) == ("bees", "dev", 3)
    assert [(query.id, query.text) for query in task.queries] == [("q2", "query 2"), ("q0", "query 0")]
    assert [task.split for task in find_tasks(folder, ["other", "dev", "other", "test"])] == ["other", "dev"]


def test_no_split_at_all_and_an_empty_one_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="for test; found dev, other"):
        find_tasks(folder, ["test"])
    with pytest.raises(InputError, match="found no split"):
        find_tasks(folder.parent, ["dev"])
    (folder / "qrels" / "dev.tsv").write_text(HEADER)
    with pytest.raises(InputError, match="has no judgments"):
        find_tasks(folder, ["dev"])


def test_judgments_of_another_corpus_or_other_queries_are_refused(folder: Path) -> None:
    (task,) = find_tasks(folder, ["dev"])
    task.check(["b", "c"])
    with pytest.raises(InputError, match=r"none of the documents .* first judged id is 'a'"):
        task.check(["x", "y"])
    (folder / "qrels" / "dev.tsv").write_text(f"{HEADER}q2\ta\t1\nghost\ta\t1\n")
    with pytest.raises(InputError, match=r"1 of 2 queries of bees/qrels/dev\.tsv .* 'ghost'"):
        find_tasks(folder, ["dev"])


def test_a_corpus_can_be_read_again_and_refuses_a_repeated_id(folder: Path) -> None:
    corpus = Corpus(folder, ("title", "text"))
    assert [document.id for document in corpus] == [document.id for document in corpus] == ["a", "b"]
    (folder / "corpus.jsonl").write_text('{"_id": "a", "title": "1"}\n{"_id": "a", "title": "2"}\n')
    with pytest.raises(RecordError, match="holds the id 'a' twice"):
        list(corpus)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}q1\td1\t2\nq1\td2\t0\nq2\td1\t-1\n",
        "q1 0 d1 2\nq1 0 d2 0\n\nq2 0 d1 -1\n",
        "q1\tQ0\td1\t2\r\nq1\tQ0\td2\t0\r\nq2\tQ0\td1\t-1\r\n",
    ],
    ids=["beir", "trec", "trec with tabs"],
)
def test_both_forms_of_judgments_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels").write_text(text)
    assert read_judgements(tmp_path / "qrels") == [
        Qrel("q1", "d1", 2),
        Qrel("q1", "d2", 0),
        Qrel("q2", "d1", -1),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"q1 0 d1 2\nq1 0 d2\n", "line 2: expected `query-id 0 document-id grade`"),
        (b"q1 0 d1 2\nq1 0 d2 high\n", "line 2: expected `query-id 0"),
        (b"q1 0 d1 2\nq1 0 \xff 1\n", "not UTF-8"),
        (b"header\nq1 0 d1 2\n", "line 2: expected query-id, corpus-id"),
        (b"", "has no judgments"),
        (HEADER.encode(), "has no judgments"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_judgment_is_refused_by_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "qrels").write_bytes(content)
    with pytest.raises((InputError, RecordError), match=message):
        read_judgements(tmp_path / "qrels")


IDS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=8).filter(
    lambda text: text.split() == [text]
)
SCORES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_a_run_round_trips_with_every_digit_and_order_of_ties(tmp_path: Path, data: st.DataObject) -> None:
    run = {}
    for query, scores in data.draw(st.dictionaries(IDS, SCORES, max_size=4)).items():
        documents = data.draw(st.lists(IDS, unique=True, min_size=len(scores), max_size=len(scores)))
        ranking = zip(documents, sorted(scores, reverse=True), strict=True)
        run[query] = [Hit(document, score) for document, score in ranking]
    write_run(tmp_path / "run.trec", run, "tag")
    assert read_run(tmp_path / "run.trec") == run


def test_a_line_of_a_run_has_the_six_columns_of_trec(tmp_path: Path) -> None:
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
        (b"q Q0 d 1 0.5", "line 2: expected `query-id Q0"),
        (b"q Q0 d one 0.5 tag", "line 2: expected `query-id Q0"),
        (b"q Q0 d 1 high tag", "line 2: expected `query-id Q0"),
        (b"q Q0 d 1 nan tag", "line 2: the score is not a number"),
        (b"q Q0 first 2 0.1 tag", "query q has document first twice"),
        (b"q Q0 \xff 1 0.5 tag", "not UTF-8"),
    ],
)
def test_what_is_no_run_is_refused_by_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "bad.trec"
    path.write_bytes(b"q Q0 first 1 0.9 tag\n" + line + b"\n")
    with pytest.raises(RecordError, match=message):
        read_run(path)


def test_a_run_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*no\.trec"):
        read_run(tmp_path / "no.trec")
    with pytest.raises(InputError, match=r"cannot write .*run\.trec"):
        write_run(tmp_path / "no" / "run.trec", {}, "tag")
    with pytest.raises(RecordError, match="'two words'"):
        write_run(tmp_path / "run.trec", {"q": [Hit("two words", 1.0)]}, "tag")
