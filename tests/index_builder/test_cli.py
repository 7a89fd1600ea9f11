"""The commands around a build: publish, verify, their exit codes and their words."""

import json
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest

from glow.artifact import IndexRoot

Run = Callable[..., click.testing.Result]


@pytest.fixture
def two_versions(build: Run, output: Path, toy_corpus: Path) -> IndexRoot:
    for _ in range(2):
        assert build(toy_corpus, "--no-publish").exit_code == 0
    return IndexRoot(output)


def test_publish_takes_the_newest_or_the_named_version(run: Run, two_versions: IndexRoot) -> None:
    old, new = two_versions.versions()
    assert run("publish", "--index-root", two_versions.path).stdout == f"published {new}\n"
    assert two_versions.current() == new
    assert run("publish", "--index-root", two_versions.path, old).stdout == f"published {old}\n"
    assert two_versions.current() == old


def test_a_damaged_version_is_neither_sound_nor_published(run: Run, two_versions: IndexRoot) -> None:
    old, new = two_versions.versions()
    run("publish", "--index-root", two_versions.path, old)
    (two_versions.folder(new) / "terms" / "dfs.npy").write_bytes(b"")
    for command in ("publish", "verify"):
        done = run(command, "--index-root", two_versions.path, new)
        assert done.exit_code == 3
        assert "terms/dfs.npy has 0 bytes" in done.stderr
    assert two_versions.current() == old


def test_verify_checks_the_live_version_or_the_named_one(
    run: Run, two_versions: IndexRoot, tmp_path: Path
) -> None:
    old, new = two_versions.versions()
    done = run("verify", "--index-root", two_versions.path)
    assert (done.exit_code, "no published index" in done.stderr) == (3, True)
    assert f"{new} is sound" in run("verify", "--index-root", two_versions.path, new).stdout
    run("publish", "--index-root", two_versions.path, old)
    done = run("verify", "--index-root", two_versions.path, "--json", tmp_path / "v.json")
    assert done.stdout.startswith(f"{old} is sound: 50 documents, flat, toy-model@sha256:")
    report = json.loads((tmp_path / "v.json").read_text())
    assert (report["status"], report["version"], report["counts"]["documents"]) == ("sound", old, 50)


def test_an_empty_root_has_nothing_to_publish(run: Run, output: Path) -> None:
    done = run("publish", "--index-root", output)
    assert (done.exit_code, "no version in" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    "options",
    [
        ("build",),
        ("build", "--input", "x.jsonl"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--index", "lsh"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--threads", "0"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--workers", "0"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--encode-batch-documents", "0"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--runner", "spark"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--max-reject-ratio", "1.5"),
        ("build", "--input", "x.jsonl", "--index-root", "o", "--max-line-bytes", "0"),
        ("rebuild",),
    ],
)
def test_wrong_options_exit_with_two(run: Run, options: tuple[str, ...]) -> None:
    assert run(*options).exit_code == 2


def test_input_that_is_not_there_exits_with_two_and_one_line(
    build: Run, output: Path, tmp_path: Path
) -> None:
    done = build(tmp_path / "missing.jsonl")
    assert done.exit_code == 2
    assert (
        done.stderr.startswith("glow: error (invalid_input): no input at")
        and len(done.stderr.splitlines()) == 1
    )
    assert not output.exists()


def test_a_report_that_could_not_be_written_is_refused_before_the_work(
    build: Run, output: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    done = build(toy_corpus, "--json", tmp_path / "nowhere" / "r.json")
    assert (done.exit_code, "there is no folder" in done.stderr) == (2, True)
    assert not output.exists()


def test_stages_are_plain_lines_where_no_terminal_is(build: Run, toy_corpus: Path) -> None:
    lines = build(toy_corpus).stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "read",
        "terms",
        "encode",
        "columns",
        "lexical",
        "spelling",
        "late",
        "index",
        "recall",
        "check",
    ]
    assert lines[2].startswith("encode: 50 documents in ")
