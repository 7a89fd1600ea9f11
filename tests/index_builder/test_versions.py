"""The commands around versions: which there are, which is live, the way back, and what may go."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.artifact import REMOVED, IndexRoot, discard, verify, write_artifact
from glow.artifact.lock import RootLock, folder_for
from glow.errors import ArtifactNotFoundError, FormatError
from glow_index_builder.commands.versions import list_versions
from glow_index_builder.versions.gc import collect
from tests.index_builder.conftest import Run
from tests.program import answer_of

SIX = {f"v{number}" for number in range(1, 7)}


def add(root: IndexRoot, *versions: str) -> None:
    for version in versions:
        with write_artifact(root.path / version, "index") as writer:
            (writer.folder / "vectors.bin").write_text(version * 100)
            writer.counts = {"documents": 10 * int(version[1:])}


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    """v1 to v6; v4 is live, v3 and v1 were before."""
    found = IndexRoot(tmp_path / "root")
    add(found, *sorted(SIX))
    found.amend("v4", {"gate": {"status": "passed"}})
    for version in ("v1", "v3", "v4"):
        found.publish(version)
    return found


@pytest.fixture
def later() -> float:
    """A time at which nothing is fresh."""
    return time.time() + 2 * 3600.0


def test_versions_are_listed_the_live_one_first(run: Run, root: IndexRoot, tmp_path: Path) -> None:
    root.pin("v1")
    (root.folder("v6") / "manifest.json").write_text("{")
    with write_artifact(root.path / "v7", "index") as writer:
        writer.parents = {"version": {"name": "v3", "hash": "x"}}
    done = run("versions", "--index-root", root.path, "--json", tmp_path / "v.json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads((tmp_path / "v.json").read_text())["versions"]
    states = {row["version"]: (row["state"], row["pinned"], row["documents"], row["gate"]) for row in rows}
    assert list(states)[:3] == ["v4", "v3", "v1"]
    assert states["v4"] == ("live", False, 40, "passed")
    assert states["v3"] == ("previous", False, 30, "")
    assert states["v1"] == ("previous", True, 10, "")
    assert states["v6"] == ("damaged", False, None, "")
    assert {row["version"]: row["size_bytes"] for row in rows}["v4"] == 200
    first, _, third = done.stdout.splitlines()[1:4]
    assert first.split()[:2] == ["v4", "live"] and third.endswith("pinned")
    assert [row.made_from for row in list_versions(root) if row.version == "v7"] == ["v3"]


def test_a_rollback_goes_back_until_there_is_nothing_before(
    run: Run, root: IndexRoot, tmp_path: Path
) -> None:
    for left, to in (("v4", "v3"), ("v3", "v1")):
        done = run("rollback", "--index-root", root.path, "--json", tmp_path / "r.json")
        assert (done.exit_code, done.stdout) == (0, f"rolled back to {to}; {left} is still there\n")
        assert json.loads((tmp_path / "r.json").read_text())["version"] == to
        assert root.current() == to
    done = run("rollback", "--index-root", root.path)
    assert (done.exit_code, "has no previous version" in done.stderr, root.current()) == (3, True, "v1")


def test_pins_are_set_and_taken_off(run: Run, root: IndexRoot, later: float) -> None:
    assert run("pin", "--index-root", root.path, "v6").stdout == "pinned v6\n"
    assert run("pin", "--index-root", root.path, "v9").exit_code == 3
    root.pin("v4")
    assert collect(root, 1, now=later).kept == {"v6": "pinned", "v4": "live"}
    assert root.versions() == ["v4", "v6"]
    assert run("unpin", "--index-root", root.path, "v6").stdout == "unpinned v6\n"
    assert run("unpin", "--index-root", root.path, "v6").stdout == "v6 was not pinned\n"


def test_gc_says_what_it_removes(run: Run, root: IndexRoot, tmp_path: Path) -> None:
    for version in ("v2", "v5"):
        os.utime(root.folder(version) / "manifest.json", (1, 1))
    (root.path / ".v9-abcdefgh").mkdir()
    before = sorted(root.path.rglob("*"))
    given = ("gc", "--index-root", root.path, "--keep", 2)
    done = run(*given, "--dry-run", "--json", tmp_path / "plan.json")
    plan = "keeps v3 (rollback)\nkeeps v4 (live)\nkeeps v6 (fresh)\nwould remove v1\n"
    assert done.stdout.startswith(plan), done.stdout
    assert sorted(root.path.rglob("*")) == before
    assert run(*given, "--json", tmp_path / "done.json").exit_code == 0
    told, found = (json.loads((tmp_path / name).read_text()) for name in ("plan.json", "done.json"))
    for name in ("removed", "kept", "leftovers", "freed_bytes"):
        assert told[name] == found[name]
    assert (found["removed"], found["leftovers"]) == (["v1", "v2", "v5"], [".v9-abcdefgh"])
    assert (told["dry_run"], found["dry_run"], found["status"]) == (True, False, "collected")
    assert run("gc", "--index-root", root.path, "--keep", 0).exit_code == 2
    assert run("gc", "--index-root", root.path).exit_code == 2


@pytest.mark.parametrize(
    "command", ["versions", "publish", "rollback", "gc --keep 1", "pin v1", "unpin v1", "gate --data ."]
)
def test_a_root_that_is_not_there_is_told_and_not_made(run: Run, tmp_path: Path, command: str) -> None:
    done = run(*command.split(), "--index-root", tmp_path / "nowhere")
    assert (done.exit_code, "artifact_not_found" in done.stderr) == (3, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        (1, {"v4": "live"}),
        (2, {"v4": "live", "v3": "rollback"}),
        (3, {"v4": "live", "v3": "rollback", "v1": "rollback"}),
        (4, {"v4": "live", "v3": "rollback", "v1": "rollback", "v6": "kept"}),
    ],
)
def test_those_that_a_rollback_goes_to_stay_first(
    root: IndexRoot, later: float, keep: int, stay: dict[str, str]
) -> None:
    (root.folder("v2") / "manifest.json").write_text("{")  # a damaged one goes, too
    found = collect(root, keep, now=later)
    assert found.kept == stay
    assert set(root.versions()) == set(stay)
    assert set(found.removed) == SIX - set(stay)
    assert root.current() == "v4"
    assert not list(root.path.glob(".removed*"))


def test_what_a_rollback_left_stays_until_something_is_published(root: IndexRoot, later: float) -> None:
    """It may hold the newest data, and publishing it again must be possible the morning after."""
    root.rollback()
    assert collect(root, 1, now=later).kept == {"v3": "live", "v4": "left"}
    root.publish("v4")
    assert collect(root, 1, now=later).kept == {"v4": "live"}


def test_hard_linked_versions_stay_whole_and_shared_bytes_are_not_counted(
    root: IndexRoot, later: float
) -> None:
    with write_artifact(root.path / "v7", "index") as writer:
        os.link(root.folder("v2") / "vectors.bin", writer.folder / "vectors.bin")
    root.publish("v7")
    before = sum(path.stat().st_size for version in SIX for path in root.folder(version).iterdir())
    found = collect(root, 1, now=later)
    verify(root.folder("v7"), "index")
    assert set(found.removed) == SIX
    assert found.freed_bytes == before - (root.folder("v7") / "vectors.bin").stat().st_size


def test_what_killed_commands_left_goes_and_what_lives_stays(root: IndexRoot, later: float) -> None:
    left = [".v8-abcdefgh", ".removed-v0-12345678"]
    for name in left:
        (root.path / name / "deep").mkdir(parents=True)
        (root.path / name / "deep" / "file").write_text("x")
    files = [".CURRENT-123-0011aabb", ".PINNED-7-0011aabb", ".manifest.json-7-0011aabb"]
    others = ["rejects-v1.jsonl", ".notes", "README"]
    for name in (*files, *others):
        (root.path / name).write_text("x")
    with folder_for(root.path / "v9") as living:
        found = collect(root, 6, now=later)
        assert living.is_dir()
        assert found.leftovers == tuple(sorted([*left, *files]))
    assert all((root.path / name).is_file() for name in [*others, ".lock", "CURRENT"])
    assert not any((root.path / name).exists() for name in [*left, *files])


def test_interrupted_builds_go_only_when_asked_and_idle(root: IndexRoot, later: float) -> None:
    work = root.path / ".work"
    for key in ("idle", "busy"):
        (work / key / "encode").mkdir(parents=True)
    assert collect(root, 6, now=later).leftovers == ()
    with RootLock(work / "busy").hold(0.0):
        assert collect(root, 6, work=True, dry_run=True).leftovers == (".work/idle",)
        assert collect(root, 6, work=True, now=later).leftovers == (".work/idle",)
    assert [path.name for path in work.iterdir()] == ["busy"]
    assert not list(root.path.glob(".removed*"))


def test_a_root_whose_files_cannot_be_read_is_left_alone(root: IndexRoot, later: float) -> None:
    (root.path / "CURRENT").write_text("gone\n")
    with pytest.raises(ArtifactNotFoundError):
        collect(root, 1, now=later)
    root.publish("v4")
    (root.path / "PINNED").write_text("what is this?\n")
    with pytest.raises(FormatError):
        collect(root, 1, now=later)
    assert set(root.versions()) == SIX


def test_without_a_live_version_the_newest_stay(tmp_path: Path, later: float) -> None:
    root = IndexRoot(tmp_path / "root")
    add(root, "v1", "v2", "v3")
    collect(root, 2, now=later)
    assert root.versions() == ["v2", "v3"]


def at_once(*works: Callable[[], object]) -> list[BaseException]:
    """Runs all in threads that begin together; what they raised."""
    barrier, errors = threading.Barrier(len(works)), []

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("attempt", range(6))
def test_two_commands_at_once_take_turns(root: IndexRoot, later: float, attempt: int) -> None:
    """Each through a root of its own, so that the lock on the disk decides and not one in memory."""
    errors = at_once(
        lambda: collect(IndexRoot(root.path), 2, now=later),
        lambda: IndexRoot(root.path).rollback(),
        lambda: collect(IndexRoot(root.path), 2, now=later),
        lambda: IndexRoot(root.path).pin("v6"),
    )
    assert all(isinstance(error, ArtifactNotFoundError) for error in errors), errors
    verify(root.folder(root.current()), "index")
    assert root.current() == "v3"
    assert all(version in root.versions() for version in root.pinned())


def test_leftovers_that_another_command_is_removing_are_counted_as_far_as_they_are_there(
    root: IndexRoot, later: float
) -> None:
    (folder := root.path / f"{REMOVED}v0-0").mkdir()
    for number in range(2_000):
        (folder / str(number)).touch()
    errors = at_once(lambda: discard(folder), *[lambda: collect(root, 9, dry_run=True, now=later)] * 3)
    assert not errors


def test_a_link_is_no_version_and_stays_with_all_that_it_leads_to(root: IndexRoot, later: float) -> None:
    add(elsewhere := IndexRoot(root.path.parent / "elsewhere"), "v0")
    (root.path / "v0").symlink_to(elsewhere.path / "v0")
    # The newest by its name, and nothing to keep or to remove.
    (root.path / "v9").symlink_to(root.path / "v2")
    found = collect(root, 1, now=later)
    assert set(found.removed) == SIX - {"v4"} and found.kept == {"v4": "live"}
    assert (root.path / "v0").is_symlink() and (elsewhere.path / "v0" / "vectors.bin").is_file()


LIVE = {"gc": {"v3"}, "rollback": {"v3", "v2"}, "publish": {"v3", "v4"}, "pin": {"v3"}, "amend": {"v3"}}
"""Command -> what may be live after its death."""
ENDS: dict[str, Callable[[IndexRoot], bool]] = {
    "gc": lambda root: root.versions() == ["v2", "v3"],
    "rollback": lambda root: root.current() == "v2",
    "publish": lambda root: (root.current(), root.history()) == ("v4", ["v3", "v2"]),
    "pin": lambda root: root.pinned() == ["v1"],
    "amend": lambda root: root.manifest("v4").parameters == {"gate": {"status": "passed"}},
}
"""Command -> what holds once it came to its end, however often it died."""


def test_a_kill_at_any_step_leaves_whole_versions_and_the_command_can_run_again(tmp_path: Path) -> None:
    states = answer_of("tests.index_builder.kill_points", tmp_path)
    assert {state["command"] for state in states} == set(LIVE) and len(states) >= 20
    for state in states:
        command, root = state["command"], IndexRoot(Path(state["root"]))
        assert state["died"] and state["live"] in LIVE[command] and not state["damaged"], state
        # A rollback that was done before its death finds nothing to go back to.
        done_before = command == "rollback" and state["live"] == "v2"
        assert state["again"] == (1 if done_before else 0), state
        for version in root.versions():
            verify(root.folder(version), "index")
        assert ENDS[command](root), state
        collect(root, 9)
        assert [path.name for path in root.path.iterdir() if path.name.startswith(".")] == [".lock"], state
