"""`python -m research.pretraining`: a run from start to end over the toy collection, its results, and their table."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from typer.testing import CliRunner

from research.pretraining.__main__ import app
from research.pretraining.tuned import RELATIONS, _pairs, tuned_pairs


def test_a_run_is_measured_once_and_tabled(collection_folder: Path, tmp_path: Path) -> None:
    places = {"--data": collection_folder, "--out": tmp_path / "results.jsonl", "--work": tmp_path / "work"}
    sizes = {"--seeds": 0, "--tokens": 4096, "--steps": 1, "--variants": "none,cross-thought-1,crops"}
    options = {**places, **sizes, "--ways": "mean,attention"}
    given = ["run", *(str(part) for option in options.items() for part in option)]
    for _ in range(3):  # one sample of 2,048 tokens takes more text than the toy collection has
        given += ["--corpus", str(collection_folder / "corpus.jsonl")]
    for _ in range(2):  # what stands there is not made again
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0, done.output
        rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [row["variant"] for row in rows] == ["none", "cross-thought-1", "crops"]
    assert set(rows[1]["unsupervised"]) == {"mean", "cls", "specials", "logits", "shares"}
    assert set(rows[1]["tuned"]) == {"mean", "logits", "shares"}
    table = CliRunner().invoke(app, ["report", "--results", str(tmp_path / "results.jsonl")])
    assert table.exit_code == 0 and "| cross-thought-1 | 1 |" in table.output

    checkpoint = next((tmp_path / "work").glob("*-cross-thought-1-0"))
    random = np.random.default_rng(0)
    texts: Any = SimpleNamespace(documents=random.integers(5, 1000, (10, 70)).tolist())
    shares = []
    for before in (1, 2):  # what was drawn before the call does not matter
        torch.manual_seed(before)
        shares.append(tuned_pairs(checkpoint, texts, 2, 0, 5e-4, symmetric=True))
    assert shares[0] == shares[1]


def test_pairs_are_of_three_relations() -> None:
    """The parts of a page in order, in the other order, or of two pages."""
    documents = [list(range(100 * number, 100 * number + 80)) for number in range(6)]
    sequences, relations = _pairs(documents, np.arange(6), 60, np.random.default_rng(0))
    assert set(relations) == set(range(len(RELATIONS))) and len(sequences) == 120
    for first, second, relation in zip(sequences[::2], sequences[1::2], relations, strict=True):
        same = first[0] // 100 == second[0] // 100
        assert same is (relation != 0)
        assert relation == 0 or (first[0] < second[0]) is (relation == 1)
