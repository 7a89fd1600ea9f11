"""Failure analysis: which queries changed most, and what both runs did with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from glow.errors import InputError
from glow.evaluation import Corpus, Run, Task, analyse, find_tasks
from glow.records import Hit
from glow.schema import FieldSchema


def made(**rankings: str) -> Run:
    """A run from ranked numbers of toy documents, `{"q-bees": "0 4"}` with `_` for `-`."""
    return {
        query.replace("_", "-"): [
            Hit(f"toy/{number}", -float(rank)) for rank, number in enumerate(numbers.split())
        ]
        for query, numbers in rankings.items()
    }


BASELINE = made(q_bees="1 2 3 0", q_ants="1", q_owls="7 8 3")
SYSTEM = made(q_bees="0", q_ants="4 5 1", q_owls="9 8 3")


@pytest.fixture
def task(toy_data: Path) -> Task:
    return find_tasks(toy_data, ["dev"])[0]


@pytest.fixture
def corpus(toy_data: Path) -> Corpus:
    return Corpus(toy_data, FieldSchema.preset("glow-default").names)


def test_queries_won_lost_and_alike_with_their_values(task: Task, corpus: Corpus) -> None:
    found = analyse(BASELINE, SYSTEM, task, corpus, "RR@10")
    assert found.counts == {"won": 1, "lost": 1, "alike": 1}
    assert (found.baseline, found.system) == pytest.approx(((1 / 4 + 1 + 1 / 3) / 3, (1 + 1 / 3 + 1 / 3) / 3))
    (won,), (lost,) = found.won, found.lost
    assert (won.query_id, won.baseline, won.system) == ("q-bees", 0.25, 1.0)
    assert (lost.query_id, lost.baseline, lost.system) == ("q-ants", 1.0, pytest.approx(1 / 3))
    assert won.text == "how do bees find home"


def test_relevant_documents_and_first_hits_have_titles_grades_and_both_ranks(
    task: Task, corpus: Corpus
) -> None:
    (won,) = analyse(BASELINE, SYSTEM, task, corpus, "RR@10", hits=2).won
    (relevant,) = won.relevant
    assert (relevant.id, relevant.title, relevant.grade) == ("toy/0", "Bees", 1)
    assert (relevant.baseline_rank, relevant.system_rank) == (4, 1)
    assert [item.title for item in won.baseline_first] == ["Ants", "Whales"]
    assert [(item.grade, item.system_rank) for item in won.baseline_first] == [(None, None)] * 2
    assert [item.id for item in won.system_first] == ["toy/0"]


def test_the_largest_differences_come_first_and_top_bounds_them(task: Task, corpus: Corpus) -> None:
    system = made(q_bees="0", q_ants="4 5 1", q_owls="9 3")
    everything = analyse(BASELINE, system, task, corpus, "RR@10")
    assert [change.query_id for change in everything.won] == ["q-bees", "q-owls"]
    cut = analyse(BASELINE, system, task, corpus, "RR@10", top=1)
    assert [change.query_id for change in cut.won] == ["q-bees"]
    assert cut.counts["won"] == 2


def test_equal_differences_keep_the_order_of_the_judgements(task: Task, corpus: Corpus) -> None:
    perfect = made(q_bees="0", q_ants="1", q_owls="3")
    assert [c.query_id for c in analyse({}, perfect, task, corpus, "RR@10").won] == [
        "q-bees",
        "q-ants",
        "q-owls",
    ]
    assert [c.query_id for c in analyse(perfect, {}, task, corpus, "RR@10").lost] == [
        "q-bees",
        "q-ants",
        "q-owls",
    ]


def test_rel_decides_which_documents_are_shown_as_relevant(toy_data: Path, corpus: Corpus) -> None:
    task = find_tasks(toy_data, ["graded"])[0]
    for rel, documents in ((1, ["toy/0", "toy/1"]), (2, ["toy/0"])):
        (won,) = analyse({}, made(q_bees="0 1"), task, corpus, "RR@10", rel).won
        assert [item.id for item in won.relevant] == documents


def test_a_document_without_title_is_named_by_its_text(task: Task, corpus: Corpus) -> None:
    text = "word " * 40
    (corpus.folder / "corpus.jsonl").write_text(f'{{"_id": "toy/0", "text": "{text}"}}\n')
    (won,) = analyse({}, made(q_bees="0 1"), task, corpus, "RR@10").won
    assert won.relevant[0].title == ("word " * 40)[:79] + "…"
    assert won.system_first[1].title == ""  # the corpus does not hold it


def test_a_corpus_of_other_documents_is_refused(task: Task, corpus: Corpus) -> None:
    other = replace(corpus)
    (other.folder / "corpus.jsonl").write_text('{"_id": "other", "text": "text"}\n')
    with pytest.raises(InputError, match=r"none of the .* documents to be shown is in toy/corpus\.jsonl"):
        analyse(BASELINE, SYSTEM, task, other, "RR@10")


def test_runs_that_are_alike_show_nothing_and_read_no_title(task: Task, corpus: Corpus) -> None:
    found = analyse(BASELINE, BASELINE, task, corpus)
    assert (found.won, found.lost, found.counts["alike"]) == ((), (), 3)
