"""An index root holds versions; CURRENT names the live one and is switched in one step."""

import os
import re
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, write_artifact
from glow.errors import ArtifactError, ArtifactNotFoundError, DiskError, IntegrityError, MismatchError
from tests.program import answer_of, glow


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    for version in ("20260101T000000Z-aaaa", "20260102T000000Z-bbbb"):
        with write_artifact(tmp_path / "root" / version, "index") as writer:
            (writer.folder / "vectors.bin").write_text(version)
    return IndexRoot(tmp_path / "root")


def test_versions_are_listed_oldest_first_and_half_made_ones_are_not(root: IndexRoot) -> None:
    (root.path / ".20260103T000000Z-cccc-tmp").mkdir()
    (root.path / "20260104T000000Z-dddd").mkdir()
    (root.path / "notes.txt").write_text("x")
    assert root.versions() == ["20260101T000000Z-aaaa", "20260102T000000Z-bbbb"]
    assert IndexRoot(root.path / "nowhere").versions() == []


def test_versions_made_within_a_second_sort_by_time(tmp_path: Path) -> None:
    names = [IndexRoot(tmp_path).new_version() for _ in range(50)]
    stamps = [name.partition("-")[0] for name in names]
    assert stamps == sorted(stamps) and len(set(stamps)) > 1


def test_a_new_version_sorts_after_older_ones_and_can_name_a_folder(tmp_path: Path) -> None:
    version = IndexRoot(tmp_path).new_version()
    assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{4}", version)
    assert version > "20260101T000000Z-aaaa"


def test_publish_makes_a_version_the_live_one(root: IndexRoot) -> None:
    for version in root.versions():
        assert root.publish(version).name == version
        assert root.current() == version
    found = sorted(path.name for path in root.path.iterdir())
    assert found == [".lock", "20260101T000000Z-aaaa", "20260102T000000Z-bbbb", "CURRENT"]


def test_a_rollback_goes_back_in_the_order_of_what_was_live(root: IndexRoot) -> None:
    first, second = root.versions()
    with write_artifact(root.path / "v3", "index"):
        pass
    for version in (first, second, "v3", second):
        root.publish(version)
    assert (root.current(), root.history()) == (second, ["v3", first])
    assert root.rollback().name == "v3"
    assert (root.current(), root.history(), root.rolled_back_from()) == ("v3", [first], [second])
    assert root.rollback().name == first
    assert root.rolled_back_from() == [second, "v3"]
    with pytest.raises(ArtifactNotFoundError, match="has no previous version"):
        root.rollback()
    assert root.current() == first
    root.publish("v3")
    assert (root.history(), root.rolled_back_from()) == ([first], [second])
    with write_artifact(root.path / "v4", "index"):
        pass
    root.publish("v4")
    assert (root.history(), root.rolled_back_from()) == (["v3", first], [])


def test_a_version_that_was_live_and_is_gone_is_passed_over(root: IndexRoot) -> None:
    first, second = root.versions()
    with write_artifact(root.path / "v3", "index"):
        pass
    for version in (first, second, "v3"):
        root.publish(version)
    shutil.rmtree(root.path / second)
    assert root.rollback().name == first


def test_a_damaged_version_is_not_rolled_back_to(root: IndexRoot) -> None:
    old, new = root.versions()
    for version in (old, new):
        root.publish(version)
    (root.path / old / "vectors.bin").write_text("20260101T000000Z-aaaA")
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        root.rollback()
    assert (root.current(), root.history()) == (new, [old])


def test_a_damaged_version_is_not_published_and_the_live_one_stays(root: IndexRoot) -> None:
    old, new = root.versions()
    root.publish(old)
    (root.path / new / "vectors.bin").write_text("20260102T000000Z-bbbB")
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        root.publish(new)
    assert root.current() == old
    assert not list(root.path.glob(".CURRENT*"))


def test_files_shared_with_the_live_version_are_not_read_again_and_others_are(root: IndexRoot) -> None:
    root.publish(root.versions()[0])
    live = root.folder(root.current())
    for version in ("v3", "v4"):
        with write_artifact(root.path / version, "index") as writer:
            (writer.folder / "vectors.bin").hardlink_to(live / "vectors.bin")
            (writer.folder / "new.bin").write_text("new")
            writer.known = {"vectors.bin": root.manifest(root.current()).files["vectors.bin"]}
    for name, is_read in (("vectors.bin", False), ("new.bin", True)):
        path = root.path / "v3" / name
        whole = path.read_bytes()
        path.write_bytes(bytes(len(whole)))
        if is_read:
            with pytest.raises(IntegrityError, match=f"v3/{name} is damaged"):
                root.publish("v3")
        else:
            root.publish("v3")
        path.write_bytes(whole)
        root.publish("v4")


def test_a_folder_of_another_kind_is_not_published(root: IndexRoot) -> None:
    with write_artifact(root.path / "model-1", "model"):
        pass
    with pytest.raises(MismatchError):
        root.publish("model-1")


@pytest.mark.parametrize("name", ["", "..", "../x", "/etc", ".hidden", "a/b", "a\n", "x" * 200])
def test_a_name_that_could_leave_the_root_is_refused(root: IndexRoot, name: str) -> None:
    with pytest.raises(ArtifactNotFoundError):
        root.publish(name)


@pytest.mark.parametrize(
    "content", [b"20990101T000000Z-ffff\n", b"../root/20260101T000000Z-aaaa", b"", b"\xff"]
)
def test_a_current_file_that_names_no_version_is_refused_with_what_there_is(
    root: IndexRoot, content: bytes
) -> None:
    (root.path / "CURRENT").write_bytes(content)
    there = ", ".join(root.versions())
    with pytest.raises(ArtifactNotFoundError, match=f"found {there}; run `glow publish`|cannot be read"):
        root.current()


def test_nothing_published_says_what_to_run(root: IndexRoot) -> None:
    with pytest.raises(ArtifactNotFoundError, match="glow build"):
        root.current()


def test_a_kill_at_any_step_leaves_the_old_version_live_or_the_new_one(tmp_path: Path) -> None:
    """The process dies before and after every rename, replace and sync of writing and publishing a version."""
    states = answer_of("tests.artifact.kill_points", tmp_path)
    assert len(states) >= 16
    for state in states:
        assert state["died"], state
        root = IndexRoot(Path(state["root"]))
        assert root.current() in ("v1", "v2"), state
        for version in root.versions():
            try:
                root.publish(version)
            except ArtifactError as error:
                pytest.fail(f"{state}: version {version} is visible and not whole: {error}")
    assert {state["live"] for state in states} == {"v1", "v2"}


def test_a_clock_that_was_set_back_does_not_make_older_content_the_newest(root: IndexRoot) -> None:
    ahead = "29991231T235959.999998Z-ffff"
    shutil.copytree(root.path / root.versions()[0], root.path / ahead)
    version = root.new_version()
    assert version > ahead
    assert version.startswith("29991231T235959.999999Z-")


def test_a_version_that_is_a_link_is_refused(root: IndexRoot, tmp_path: Path) -> None:
    first = root.versions()[0]
    moved = (root.path / first).rename(tmp_path / "elsewhere")
    (root.path / first).symlink_to(moved)
    assert first not in root.versions()
    for refused in (lambda: root.publish(first), lambda: root.manifest(first), lambda: root.remove(first)):
        with pytest.raises(ArtifactError, match=r"is a symbolic link|no version"):
            refused()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_current_must_be_a_regular_file(root: IndexRoot, make: Callable[[Path], None]) -> None:
    (root.path / "CURRENT").unlink(missing_ok=True)
    make(root.path / "CURRENT")
    with pytest.raises(ArtifactNotFoundError, match="not a regular file"):
        root.current()


@pytest.mark.parametrize("change", ["publish", "pin", "rollback"])
def test_a_full_disk_is_one_message_and_changes_nothing(root: IndexRoot, change: str) -> None:
    for version in root.versions():
        root.publish(version)
    before = (root.path / "CURRENT").read_bytes()
    arguments = [] if change == "rollback" else [root.versions()[0]]
    no_write = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = glow(change, *arguments, "--index-root", root.path, preexec_fn=no_write)
    assert done.returncode == DiskError.exit_code == 4, done.stderr
    assert done.stderr.startswith("glow: ") and done.stderr.count("\n") == 1
    assert "cannot write below" in done.stderr
    assert (root.path / "CURRENT").read_bytes() == before
    assert not [path for path in root.path.iterdir() if path.name.startswith(".CURRENT")]
