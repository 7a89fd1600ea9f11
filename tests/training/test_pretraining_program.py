"""`python -m research pretraining`: a run from start to end over the toy collection, its results, and their table."""

import json
from pathlib import Path

from typer.testing import CliRunner

from research.pretraining import app


def test_a_run_is_measured_once_and_tabled(collection_folder: Path, tmp_path: Path) -> None:
    places = {"--data": collection_folder, "--out": tmp_path / "results.jsonl", "--work": tmp_path / "work"}
    sizes = {"--seeds": 0, "--tokens": 4096, "--steps": 1, "--variants": "none,cross-thought-1,crops"}
    given = ["run", *(str(part) for option in {**places, **sizes}.items() for part in option)]
    for _ in range(3):  # one sample of 2,048 tokens takes more text than the toy collection has
        given += ["--corpus", str(collection_folder / "corpus.jsonl")]
    for _ in range(2):  # what stands there is not made again
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0, done.output
        rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [row["variant"] for row in rows] == ["none", "cross-thought-1", "crops"]
    assert set(rows[1]["unsupervised"]) == {"mean", "cls", "specials", "logits", "shares"}
    assert set(rows[1]["tuned"]) == {"mean"}
    table = CliRunner().invoke(app, ["report", "--results", str(tmp_path / "results.jsonl")])
    assert table.exit_code == 0 and "| cross-thought-1 | 1 |" in table.output
