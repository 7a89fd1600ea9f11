"""Versions that an earlier release built with `--shards`: every command refuses them by name and tells the way out."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot, write_artifact
from glow.cli import app
from tests.ports import free_port

VERSION = "20261122T023123.345471Z-5392"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What such a release left, as far as it is read: a manifest, `shards.json`, and the name of both in `CURRENT`."""
    path = tmp_path / "index"
    with write_artifact(path / VERSION, "index") as writer:
        writer.counts = {"documents": 2, "shards": 2}
    (path / VERSION / "shards.json").write_text("{}", encoding="utf-8")
    (path / "CURRENT").write_text(f"{VERSION}\n", encoding="utf-8")
    return path


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A line that is a document, and an id to delete."""
    path = tmp_path / "documents.jsonl"
    path.write_text('{"_id": "d1", "text": "bees"}\n', encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "command",
    [
        "verify --index-root ROOT",
        "publish --index-root ROOT VERSION",
        "upsert --index-root ROOT --input FILE --model MODEL",
        "delete --index-root ROOT --input FILE",
        "compact --index-root ROOT",
        "ingest --index-root ROOT --once",
        "export-index --index-root ROOT --to FILE.tar",
        "search bees --index-root ROOT",
        "explain --query bees --id d1 --index-root ROOT",
    ],
)
def test_it_is_refused_by_name(command: str, root: Path, documents: Path, toy_model: Path) -> None:
    values = {"ROOT": root, "VERSION": VERSION, "FILE": documents, "MODEL": toy_model}
    arguments = command.split()
    for name, value in values.items():
        arguments = [each.replace(name, str(value)) for each in arguments]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3, done.output
    assert f"version {VERSION} has a shards.json" in done.output
    assert "build it again without --shards" in done.output
    assert IndexRoot(root).versions() == [VERSION]


def test_a_service_does_not_start_with_it(root: Path) -> None:
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(root), "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, f"version {VERSION} has a shards.json" in done.stderr) == (3, True), done.stderr


def test_a_new_version_takes_its_place(root: Path, documents: Path, toy_model: Path) -> None:
    given = [
        "--model",
        str(toy_model),
        "--input",
        str(documents),
        "--index-root",
        str(root),
        "--threads",
        "1",
    ]
    done = CliRunner().invoke(app, ["build", *given])
    assert done.exit_code == 0, done.output
    assert IndexRoot(root).history() == [VERSION]
    done = CliRunner().invoke(app, ["gc", "--index-root", str(root), "--keep", "1"])
    assert (done.exit_code, IndexRoot(root).versions()) == (0, [IndexRoot(root).current()]), done.output


def test_the_option_is_gone(root: Path, documents: Path) -> None:
    done = CliRunner().invoke(
        app, ["build", "--input", str(documents), "--index-root", str(root), "--shards", "2"]
    )
    assert (done.exit_code, "No such option: --shards" in done.output) == (2, True), done.output
