"""Reading corpora and splits: what fits is read, what does not is refused with the reason."""

from pathlib import Path

import pytest

from glow.errors import InputError, RecordError
from glow.evaluation import Corpus, find_tasks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder of two documents and three judged queries in two splits."""
    data = tmp_path / "bees"
    (data / "qrels").mkdir(parents=True)
    (data / "corpus.jsonl").write_text('{"_id": "a", "title": "bees"}\n{"_id": "b", "text": "honey"}\n')
    (data / "queries.jsonl").write_text(
        "".join(f'{{"_id": "q{number}", "text": "query {number}"}}\n' for number in range(4))
    )
    (data / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\ta\t1\nq0\tb\t0\nq2\tb\t2\n")
    (data / "qrels" / "other.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\n")
    return data


def test_a_task_holds_the_judged_queries_in_the_order_of_the_judgements(folder: Path) -> None:
    (task,) = find_tasks(folder, ["dev"])
    assert (task.data, task.split, len(task.qrels)) == ("bees", "dev", 3)
    assert [(query.id, query.text) for query in task.queries] == [("q2", "query 2"), ("q0", "query 0")]


def test_several_splits_come_in_the_order_asked_and_missing_ones_are_left_out(folder: Path) -> None:
    assert [task.split for task in find_tasks(folder, ["other", "dev", "other", "test"])] == ["other", "dev"]


def test_no_split_at_all_is_refused_with_what_is_there(folder: Path) -> None:
    with pytest.raises(InputError, match="for test; found dev, other"):
        find_tasks(folder, ["test"])
    with pytest.raises(InputError, match="found no split"):
        find_tasks(folder.parent, ["dev"])


def test_a_judged_query_without_text_is_refused_by_name(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\ta\t1\nghost\ta\t1\n")
    with pytest.raises(InputError, match=r"1 of 2 queries of bees/qrels/dev\.tsv .* 'ghost'"):
        find_tasks(folder, ["dev"])


def test_judgements_without_a_row_are_refused(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(InputError, match="has no judgments"):
        find_tasks(folder, ["dev"])


def test_judgements_of_another_corpus_are_refused(folder: Path) -> None:
    (task,) = find_tasks(folder, ["dev"])
    task.check(["b", "c"])
    with pytest.raises(InputError, match=r"none of the documents .* first judged id is 'a'"):
        task.check(["x", "y"])


def test_a_corpus_can_be_read_again_and_refuses_a_repeated_id(folder: Path) -> None:
    corpus = Corpus(folder, ("title", "text"))
    assert [document.id for document in corpus] == [document.id for document in corpus] == ["a", "b"]
    (folder / "corpus.jsonl").write_text('{"_id": "a", "title": "1"}\n{"_id": "a", "title": "2"}\n')
    with pytest.raises(RecordError, match="holds the id 'a' twice"):
        list(corpus)
