"""What changed between two versions: known changes come out as known counts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest

from glow.artifact import IndexRoot
from glow.evaluation.version import mean_overlap
from glow.query_log import LoggedQuery
from glow.text import TermTable
from glow_index_builder.versions.diff import idf_drift

Run = Callable[..., click.testing.Result]


@pytest.fixture
def versions(build: Run, output: Path, toy_corpus: Path, tmp_path: Path) -> tuple[str, str]:
    """The toy corpus, and the same with three documents gone, two new, and one changed in a field, one in metadata."""
    assert build(toy_corpus).exit_code == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in toy_corpus.read_text("utf-8").splitlines()]
    del lines[10:13]
    lines[0] = {**lines[0], "text": lines[0]["text"] + " Honey is sweet."}
    lines[1] = {**lines[1], "year": 1900}
    lines[2] = dict(reversed(lines[2].items()))  # another order of keys is no change
    lines += [{"_id": f"new/{number}", "text": "Honey and more honey."} for number in range(2)]
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert build(changed, "--no-lexical").exit_code == 0
    old, new = IndexRoot(output).versions()
    return old, new


def test_known_changes_are_counted_and_named(
    run: Run, output: Path, versions: tuple[str, str], tmp_path: Path
) -> None:
    done = run("diff", "--index-root", output, *versions, "--threads", 1, "--json", tmp_path / "d.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    documents = found["documents"]
    assert (documents["added"], documents["removed"], documents["changed"], documents["same"]) == (
        2,
        3,
        2,
        45,
    )
    assert documents["first"] == {
        "added": ["new/0", "new/1"],
        "removed": ["toy/10", "toy/11", "toy/12"],
        "changed": ["toy/0", "toy/1"],
    }
    assert set(found["options"]) == {"source", "lexical"}
    assert found["options"]["lexical"] == {"old": True, "new": False}
    assert found["model"] == {}
    assert set(found["overlap"]) == {"dense"} and 0.3 < found["overlap"]["dense"] < 1.0
    words = {each["word"]: each for each in found["idf"]["largest"]}
    assert words["honey"]["new"] < words["honey"]["old"]
    assert found["idf"]["words_added"] == 1 and found["idf"]["words_removed"] > 0
    assert "documents: 2 added, 3 removed, 2 changed, 45 the same" in done.stdout


def test_a_version_does_not_differ_from_itself(
    run: Run, output: Path, versions: tuple[str, str], tmp_path: Path
) -> None:
    old, _ = versions
    logged = LoggedQuery("r", "honey bees", "dense", 10, 0, "v", 1.0)
    (tmp_path / "log.jsonl").write_text(json.dumps(logged.values()) + "\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "honey bees"}\n')
    for source in (("--query-log", tmp_path / "log.jsonl"), ("--queries", tmp_path / "queries.jsonl")):
        done = run("diff", "--index-root", output, old, old, *source, "--json", tmp_path / "d.json")
        assert done.exit_code == 0, done.stderr
        found = json.loads((tmp_path / "d.json").read_text())
        assert (found["documents"]["same"], found["queries"]) == (50, 1)
        assert found["overlap"] == {"dense": 1.0, "hybrid": 1.0}
        assert found["idf"] == {"words_added": 0, "words_removed": 0, "mean_change": 0.0, "largest": []}
        assert (found["options"], found["model"]) == ({}, {})
    done = run("diff", "--index-root", output, old, old, "--queries", "a", "--query-log", "b")
    assert done.exit_code == 2
    assert run("diff", "--index-root", output, old, "v9").exit_code == 3


def test_drift_weighs_words_by_the_documents_that_hold_them() -> None:
    old = TermTable.from_counts({"often": 50, "rare": 1, "gone": 2}, 200, {})
    new = TermTable.from_counts({"often": 50, "rare": 2, "come": 3}, 200, {})
    found = idf_drift(old, new)
    changes = {each["word"]: abs(each["new"] - each["old"]) for each in found.largest}
    assert list(changes) == ["rare"]
    assert (found.words_added, found.words_removed) == (1, 1)
    assert found.mean_change == pytest.approx(changes["rare"] * 3 / (3 + 100), abs=1e-5)


def test_overlap_passes_over_queries_that_nothing_answers() -> None:
    assert mean_overlap([("a", "b"), ()], [("b", "c"), ()]) == 0.5
    assert mean_overlap([("a", "b")], [("a",)]) == 0.5
    assert mean_overlap([()], [()]) is None


def test_a_version_with_a_delta_is_compared_as_one_index(
    run: Run, build: Run, toy_corpus: Path, toy_model: Path, output: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in toy_corpus.read_text("utf-8").splitlines()]
    (tmp_path / "gone").write_text("toy/7\ntoy/31\n")
    changes = [{**lines[20], "title": "Tides"}, lines[5], {"_id": "new/1", "text": "Honey and more honey."}]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changes))
    done = run("delete", "--index-root", output, "--input", tmp_path / "gone")
    assert done.exit_code == 0, done.stderr
    done = run("upsert", "--index-root", output, "--model", toy_model, "--input", tmp_path / "new.jsonl")
    assert done.exit_code == 0, done.stderr
    first, *_, last = IndexRoot(output).versions()
    done = run("diff", "--index-root", output, first, last, "--json", tmp_path / "d.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["documents"] == {
        "added": 1,
        "removed": 2,
        "changed": 1,
        "same": 47,
        "first": {"added": ["new/1"], "removed": ["toy/31", "toy/7"], "changed": ["toy/20"]},
    }
    assert found["idf"]["mean_change"] == 0.0  # a delta keeps the term statistics of its base
