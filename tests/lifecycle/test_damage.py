"""No damage to a file of a model or an index goes unseen, and none kills the process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_fifty_seeded_damages_are_each_refused_by_the_name_of_the_file(
    rerank_index: Path, toy_model: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.lifecycle.damage",
        "--index-root",
        str(rerank_index),
        "--model",
        str(toy_model),
    ]
    done = subprocess.run(
        [*command, "--count", "50", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["damages"] == 50 and report["files"] > 20


MOST_MB = 400.0
"""Of a process that changes, opens and searches: most of it are the libraries."""


def edited(index_root: Path, only: str, share: float) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.lifecycle.edited",
        "--index-root",
        str(index_root),
        "--only",
        only,
    ]
    done = subprocess.run(
        [*command, "--share", str(share)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["peak_mb"] < MOST_MB
    return report


def test_edited_term_representations_are_refused_by_name_or_searched(rerank_index: Path) -> None:
    report = edited(rerank_index, "states/,mixture.json,reranker/reranker.json", 0.12)
    assert report["refused"] > 50 and report["answered"] > 1


def test_edited_learned_impacts_and_documents_are_refused_by_name_or_searched(learned_index: Path) -> None:
    report = edited(learned_index, "learned/,learned-words/,documents.sqlite", 0.12)
    assert report["refused"] > 60 and report["answered"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rerank_index", "learned_index"])
def test_every_edit_of_every_file_is_refused_by_name_or_searched(
    kind: str, request: pytest.FixtureRequest
) -> None:
    names = "states/,mixture.json,learned/,learned-words/,impacts/,columns/,spelling/,terms/,documents.sqlite"
    assert edited(request.getfixturevalue(kind), names, 1.0)["refused"] > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model"), [("rerank_index", "toy_model"), ("learned_index", "learned_model")]
)
def test_every_edit_of_every_file_of_a_delta_is_refused_by_name_or_searched(
    kind: str, model: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = shutil.copytree(request.getfixturevalue(kind), tmp_path / "root")
    (tmp_path / "more.jsonl").write_text('{"_id": "new", "title": "bees", "text": "how bees find honey"}\n')
    command = [sys.executable, "-m", "glow", "upsert", "--input", str(tmp_path / "more.jsonl")]
    more = ["--model", str(request.getfixturevalue(model)), "--index-root", str(root)]
    subprocess.run([*command, *more], cwd=ROOT, check=True)
    assert edited(root, "delta/", 1.0)["refused"] > 500
