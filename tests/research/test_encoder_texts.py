"""Texts that a fast query tower learns by."""

import json
from pathlib import Path

import numpy as np
import pytest

from research.encoders.pack import OPENINGS, TASKS, make_texts, question


@pytest.mark.parametrize(
    ("heading", "task"),
    [
        ("Installing packages", "install packages"),
        ("Setting the proxy", "set the proxy"),
        ("Running a command:", "run a command:"),
    ],
)
def test_a_gerund_becomes_a_task(heading: str, task: str) -> None:
    found = {question(heading, np.random.default_rng(seed)) for seed in range(40)}
    assert found == {f"{opening} {task}".strip() for opening in TASKS}


def test_other_texts_get_an_opening() -> None:
    found = question("A steam engine turns heat into motion.", np.random.default_rng(3))
    opening = next(each for each in OPENINGS if found.startswith(each))
    assert found.removeprefix(opening).strip(" ?").lower() in "a steam engine turns heat into motion"


def test_queries_of_other_splits_are_no_texts(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td\t1\n", encoding="utf-8")
    queries = [{"_id": "q1", "text": "train me"}, {"_id": "q2", "text": "keep me apart"}]
    lines = "".join(f"{json.dumps(each)}\n" for each in queries)
    (tmp_path / "queries.jsonl").write_text(lines, encoding="utf-8")
    text = "Steam is hot water. It drives engines of every kind."
    (tmp_path / "corpus.jsonl").write_text(
        json.dumps({"_id": "d", "title": "Steam", "text": text}) + "\n", encoding="utf-8"
    )
    found = make_texts([tmp_path], 100, 0)
    assert "train me" in found and not any("apart" in each for each in found)
    assert found == make_texts([tmp_path], 100, 0) and len(make_texts([tmp_path], 1, 0)) == 1
