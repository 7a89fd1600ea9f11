"""The commands around versions: which there are, which is live, and the way back."""

import json
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, write_artifact
from glow_index_builder.commands.versions import list_versions
from tests.index_builder.conftest import Run


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    """v1 and v2 were live before v3; v4 never was."""
    found = IndexRoot(tmp_path / "root")
    for number in range(1, 5):
        with write_artifact(found.path / f"v{number}", "index") as writer:
            (writer.folder / "vectors.bin").write_bytes(bytes(number))
            writer.counts = {"documents": 10 * number}
            writer.parameters = {"gate": {"status": "passed"}} if number == 3 else {}
    for version in ("v1", "v2", "v3"):
        found.publish(version)
    return found


def test_versions_are_listed_the_live_one_first(run: Run, root: IndexRoot, tmp_path: Path) -> None:
    root.pin("v1")
    (root.folder("v4") / "manifest.json").write_text("{")
    done = run("versions", "--index-root", root.path, "--json", tmp_path / "v.json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads((tmp_path / "v.json").read_text())["versions"]
    assert [(row["version"], row["state"], row["pinned"]) for row in rows] == [
        ("v3", "live", False),
        ("v2", "previous", False),
        ("v1", "previous", True),
        ("v4", "damaged", False),
    ]
    assert [(row["documents"], row["size_bytes"], row["gate"]) for row in rows] == [
        (30, 3, "passed"),
        (20, 2, ""),
        (10, 1, ""),
        (None, 0, ""),
    ]
    lines = done.stdout.splitlines()
    states = [line.split()[:2] for line in lines[1:4]]
    assert states == [["v3", "live"], ["v2", "previous"], ["v1", "previous"]]
    assert lines[3].endswith("pinned")


def test_a_rollback_goes_back_until_there_is_nothing_before(
    run: Run, root: IndexRoot, tmp_path: Path
) -> None:
    for left, to in (("v3", "v2"), ("v2", "v1")):
        done = run("rollback", "--index-root", root.path, "--json", tmp_path / "r.json")
        assert (done.exit_code, done.stdout) == (0, f"rolled back to {to}; {left} is still there\n")
        assert json.loads((tmp_path / "r.json").read_text())["version"] == to
        assert root.current() == to
    done = run("rollback", "--index-root", root.path)
    assert (done.exit_code, "has no previous version" in done.stderr, root.current()) == (3, True, "v1")


def test_pins_are_set_and_taken_off(run: Run, root: IndexRoot) -> None:
    assert run("pin", "--index-root", root.path, "v4").stdout == "pinned v4\n"
    assert run("gc", "--index-root", root.path, "--keep", 1).exit_code == 0
    assert root.versions() == ["v3", "v4"]
    assert run("unpin", "--index-root", root.path, "v4").stdout == "unpinned v4\n"
    assert run("unpin", "--index-root", root.path, "v4").stdout == "v4 was not pinned\n"
    assert run("pin", "--index-root", root.path, "v9").exit_code == 3


def test_gc_says_what_it_removes(run: Run, root: IndexRoot, tmp_path: Path) -> None:
    done = run("gc", "--index-root", root.path, "--keep", 2, "--dry-run")
    plan = "keeps v2 (rollback)\nkeeps v3 (live)\nkeeps v4 (fresh)\nwould remove v1\n"
    assert done.stdout.startswith(plan)
    assert len(root.versions()) == 4
    assert run("gc", "--index-root", root.path, "--keep", 2, "--json", tmp_path / "g.json").exit_code == 0
    found = json.loads((tmp_path / "g.json").read_text())
    assert (found["removed"], found["dry_run"], found["status"]) == (["v1"], False, "collected")
    assert run("gc", "--index-root", root.path, "--keep", 0).exit_code == 2
    assert run("gc", "--index-root", root.path).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("versions",),
        ("rollback",),
        ("gc", "--keep", "1"),
        ("pin", "v1"),
        ("unpin", "v1"),
        ("gate", "--data", "."),
    ],
)
def test_a_root_that_is_not_there_is_told_and_not_made(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run(command[0], "--index-root", tmp_path / "nowhere", *command[1:])
    assert (done.exit_code, "artifact_not_found" in done.stderr) == (3, True)
    assert not list(tmp_path.iterdir())


def test_a_version_that_adds_to_another_names_it(root: IndexRoot) -> None:
    with write_artifact(root.path / "v5", "index") as writer:
        writer.parents = {"version": {"name": "v3", "hash": "x"}}
    assert [row.made_from for row in list_versions(root) if row.version == "v5"] == ["v3"]
