"""The commands and the Python of docs/evaluation.md run, in their order, on a small collection."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.cli import app

PAGE = (Path(__file__).parent.parent.parent / "docs" / "evaluation.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^    glow (.+)$", re.MULTILINE)
PYTHON = re.compile(r"^## From Python\n\n((?: {4}.*\n|\n)+)", re.MULTILINE)


@pytest.fixture
def place(toy_data: Path, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with `DIR`, a train split, and a default model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DIR").symlink_to(toy_data)
    (toy_data / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq-none\ttoy/1\t1\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "DEFAULT").write_text("glow-mini\n")
    (tmp_path / "models" / "glow-mini").symlink_to(toy_model)
    return tmp_path


def test_every_command_is_shown_and_runs(place: Path) -> None:
    examples = COMMAND.findall(PAGE)
    assert {example.split()[0] for example in examples} == {
        "evaluate",
        "measure",
        "fuse",
        "compare",
        "failures",
    }
    for example in examples:
        result = CliRunner().invoke(app, shlex.split(example))
        assert result.exit_code == 0, f"{example}\n{result.output}"
    assert {path.name for path in place.glob("*.*")} == {
        *("dense.trec", "lexical.trec", "fused.trec", "dense.json", "table.md")
    }


def test_the_python_runs(place: Path, toy_data: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "medquad").symlink_to(toy_data)
    found = PYTHON.search(PAGE)
    assert found is not None
    command = [sys.executable, "-c", re.sub(r"^ {4}", "", found[1], flags=re.MULTILINE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "dev {'RR@10':" in done.stdout
