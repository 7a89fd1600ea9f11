"""Kills and damage: a command leaves the old version live or the new one; a changed file is refused by name or does no harm."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.program import answer_of, glow

MOST_MB = 400.0
"""Of a process that changes, opens and searches: most of it are the libraries."""


def test_seeded_kills_leave_old_or_new_and_nothing_between() -> None:
    report = answer_of("tests.lifecycle.crash", "--runs", 32, "--seed", 11)
    assert report["runs"] == 32 and set(report["live"]) == {"old", "new"}
    assert min(report["moments"].values()) > 3  # each command was watched at work


def test_fifty_seeded_damages_are_each_refused_by_the_name_of_the_file(
    rerank_index: Path, toy_model: Path
) -> None:
    given = ("--index-root", rerank_index, "--model", toy_model, "--count", 50, "--seed", 7)
    report = answer_of("tests.lifecycle.damage", *given)
    assert report["damages"] == 50 and report["files"] > 20


def edited(index_root: Path, only: str, share: float) -> dict[str, Any]:
    given = ("--index-root", index_root, "--only", only, "--share", share)
    report: dict[str, Any] = answer_of("tests.lifecycle.damage", *given)
    assert report["peak_mb"] < MOST_MB
    return report


@pytest.mark.parametrize(
    ("kind", "only", "refused", "answered"),
    [
        ("rerank_index", "states/,mixture.json,reranker/reranker.json", 50, 1),
        ("learned_index", "learned/,learned-words/,documents.sqlite", 60, 10),
    ],
)
def test_edited_files_are_refused_by_name_or_searched(
    kind: str, only: str, refused: int, answered: int, request: pytest.FixtureRequest
) -> None:
    report = edited(request.getfixturevalue(kind), only, 0.12)
    assert report["refused"] > refused and report["answered"] > answered


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model"), [("rerank_index", "toy_model"), ("learned_index", "learned_model")]
)
def test_every_edit_of_every_file_is_refused_by_name_or_searched(
    kind: str, model: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of a version, and of a delta over it."""
    index = request.getfixturevalue(kind)
    names = "states/,mixture.json,learned/,learned-words/,impacts/,columns/,spelling/,terms/,documents.sqlite"
    assert edited(index, names, 1.0)["refused"] > 500
    root, more = shutil.copytree(index, tmp_path / "root"), tmp_path / "more.jsonl"
    more.write_text('{"_id": "new", "title": "bees", "text": "how bees find honey"}\n')
    given = ("--model", request.getfixturevalue(model), "--index-root", root)
    assert glow("upsert", "--input", more, *given).returncode == 0
    assert edited(root, "delta/", 1.0)["refused"] > 500
