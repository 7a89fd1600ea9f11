"""Old versions and leftovers go; what is live, pinned, fresh or being made stays."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.artifact import REMOVED, IndexRoot, discard, verify, write_artifact
from glow.artifact.lock import RootLock, folder_for
from glow.errors import ArtifactNotFoundError, FormatError
from glow_index_builder.versions.gc import collect

LATER = 2 * 3600.0
"""Seconds after which nothing is fresh."""


def make(root: IndexRoot, *versions: str) -> None:
    for version in versions:
        with write_artifact(root.path / version, "index") as writer:
            (writer.folder / "vectors.bin").write_text(version * 100)


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    """v1 to v6; v4 is live, v3 and v1 were before."""
    found = IndexRoot(tmp_path / "root")
    make(found, *(f"v{number}" for number in range(1, 7)))
    for version in ("v1", "v3", "v4"):
        found.publish(version)
    return found


@pytest.fixture
def later() -> float:
    return time.time() + LATER


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
    found = collect(root, keep, now=later)
    assert found.kept == stay
    assert set(root.versions()) == set(stay)
    assert set(found.removed) == {f"v{number}" for number in range(1, 7)} - set(stay)
    assert root.current() == "v4"
    assert not list(root.path.glob(".removed*"))


def test_what_a_rollback_left_stays_until_something_is_published(root: IndexRoot, later: float) -> None:
    """It may hold the newest data, and publishing it again must be possible the morning after."""
    root.rollback()
    assert collect(root, 1, now=later).kept == {"v3": "live", "v4": "left"}
    root.publish("v4")
    assert collect(root, 1, now=later).kept == {"v4": "live"}


def test_pinned_versions_stay_beside_the_others(root: IndexRoot, later: float) -> None:
    for version in ("v2", "v4"):
        root.pin(version)
    assert collect(root, 1, now=later).kept == {"v2": "pinned", "v4": "live"}
    assert root.versions() == ["v2", "v4"]


def test_a_new_version_that_was_never_live_is_left_to_its_build(root: IndexRoot, later: float) -> None:
    for version in ("v2", "v5"):
        os.utime(root.folder(version) / "manifest.json", (1, 1))
    kept = collect(root, 1).kept
    assert kept == {"v4": "live", "v6": "fresh"}


def test_a_dry_run_says_the_same_and_removes_nothing(root: IndexRoot, later: float) -> None:
    (root.path / ".v9-abcdefgh").mkdir()
    before = sorted(root.path.rglob("*"))
    plan = collect(root, 2, dry_run=True, now=later)
    assert sorted(root.path.rglob("*")) == before
    done = collect(root, 2, now=later)
    for name in ("removed", "kept", "leftovers", "freed_bytes"):
        assert getattr(plan, name) == getattr(done, name)
    assert plan.dry_run and not done.dry_run
    assert done.leftovers == (".v9-abcdefgh",)


def test_hard_linked_versions_stay_whole_and_shared_bytes_are_not_counted(
    root: IndexRoot, later: float
) -> None:
    with write_artifact(root.path / "v7", "index") as writer:
        os.link(root.folder("v2") / "vectors.bin", writer.folder / "vectors.bin")
    root.publish("v7")
    folders = [root.folder(f"v{number}") for number in range(1, 7)]
    before = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
    found = collect(root, 1, now=later)
    verify(root.folder("v7"), "index")
    assert found.removed == ("v1", "v2", "v3", "v4", "v5", "v6")
    shared = (root.folder("v7") / "vectors.bin").stat().st_size
    assert found.freed_bytes == before - shared
    assert not (root.path / "v2").exists()


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


def test_a_damaged_version_can_be_removed(root: IndexRoot, later: float) -> None:
    (root.folder("v2") / "manifest.json").write_text("{")
    assert "v2" in collect(root, 1, now=later).removed


def test_a_root_whose_files_cannot_be_read_is_left_alone(root: IndexRoot, later: float) -> None:
    (root.path / "CURRENT").write_text("gone\n")
    with pytest.raises(ArtifactNotFoundError):
        collect(root, 1, now=later)
    root.publish("v4")
    (root.path / "PINNED").write_text("what is this?\n")
    with pytest.raises(FormatError):
        collect(root, 1, now=later)
    assert len(root.versions()) == 6
    with pytest.raises(ArtifactNotFoundError):
        collect(IndexRoot(root.path / "nowhere"), 1)
    assert not (root.path / "nowhere").exists()


def test_without_a_live_version_the_newest_stay(tmp_path: Path, later: float) -> None:
    root = IndexRoot(tmp_path / "root")
    make(root, "v1", "v2", "v3")
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


def test_two_commands_at_once_take_turns(tmp_path: Path, later: float) -> None:
    """Each through a root of its own, so that the lock on the disk decides and not one in memory."""
    for attempt in range(10):
        root = IndexRoot(tmp_path / str(attempt))
        make(root, *(f"v{number}" for number in range(1, 7)))
        for version in ("v1", "v3", "v4"):
            root.publish(version)
        errors = at_once(
            lambda: collect(IndexRoot(root.path), 2, now=later),  # noqa: B023 - joined below
            lambda: IndexRoot(root.path).rollback(),  # noqa: B023
            lambda: collect(IndexRoot(root.path), 2, now=later),  # noqa: B023
            lambda: IndexRoot(root.path).pin("v6"),  # noqa: B023
        )
        assert all(isinstance(error, ArtifactNotFoundError) for error in errors), errors
        verify(root.folder(root.current()), "index")
        assert root.current() == "v3"
        assert all(version in root.versions() for version in root.pinned())


def test_leftovers_that_another_command_is_removing_are_counted_as_far_as_they_are_there(
    root: IndexRoot, later: float
) -> None:
    (folder := root.path / f"{REMOVED}v0-0").mkdir()
    for number in range(3_000):
        (folder / str(number)).touch()
    errors = at_once(lambda: discard(folder), *[lambda: collect(root, 9, dry_run=True, now=later)] * 3)
    assert not errors


def test_a_link_is_no_version_and_stays_with_all_that_it_leads_to(root: IndexRoot, later: float) -> None:
    make(elsewhere := IndexRoot(root.path.parent / "elsewhere"), "v0")
    (root.path / "v0").symlink_to(elsewhere.path / "v0")
    # The newest by its name, and nothing to keep or to remove.
    (root.path / "v9").symlink_to(root.path / "v2")
    found = collect(root, 1, now=later)
    assert set(found.removed) == {"v1", "v2", "v3", "v5", "v6"} and found.kept == {"v4": "live"}
    assert (root.path / "v0").is_symlink() and (elsewhere.path / "v0" / "vectors.bin").is_file()
