"""An index root holds versions; CURRENT names the live one and is switched in one step; pinned ones stay."""

import os
import re
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, verify, write_artifact
from glow.artifact.lock import discard
from glow.errors import (
    ArtifactError,
    ArtifactNotFoundError,
    BuildError,
    DiskError,
    FormatError,
    GateError,
    IntegrityError,
    MismatchError,
)
from tests.program import answer_of, glow

VERSIONS = ["v1", "v2", "v3"]


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    """Three versions, none of them published."""
    for version in VERSIONS:
        with write_artifact(tmp_path / "root" / version, "index") as writer:
            (writer.folder / "vectors.bin").write_text(version)
            writer.parameters = {"kind": "flat"}
    return IndexRoot(tmp_path / "root")


def test_versions_are_listed_oldest_first_and_half_made_ones_are_not(root: IndexRoot) -> None:
    (root.path / ".v3-cccc-tmp").mkdir()
    (root.path / "v4").mkdir()
    (root.path / "notes.txt").write_text("x")
    assert root.versions() == VERSIONS
    assert IndexRoot(root.path / "nowhere").versions() == []


def test_new_versions_sort_by_time_and_can_name_a_folder(root: IndexRoot) -> None:
    names = [root.new_version() for _ in range(50)]
    assert all(re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{4}", name) for name in names)
    stamps = [name.partition("-")[0] for name in names]
    assert stamps == sorted(stamps) and len(set(stamps)) > 1


def test_a_clock_that_was_set_back_does_not_make_older_content_the_newest(tmp_path: Path) -> None:
    ahead, root = "29991231T235959.999998Z-ffff", IndexRoot(tmp_path)
    with write_artifact(tmp_path / ahead, "index"):
        pass
    version = root.new_version()
    assert version > ahead and version.startswith("29991231T235959.999999Z-")


def test_publish_makes_a_version_the_live_one(root: IndexRoot) -> None:
    with pytest.raises(ArtifactNotFoundError, match="glow build"):
        root.current()
    assert root.live() is None
    for version in root.versions():
        assert root.publish(version).name == version
        assert root.current() == root.live() == version
    assert sorted(path.name for path in root.path.iterdir()) == [".lock", "CURRENT", *VERSIONS]


def test_a_rollback_goes_back_in_the_order_of_what_was_live(root: IndexRoot) -> None:
    for version in ("v1", "v2", "v3", "v2"):
        root.publish(version)
    assert (root.current(), root.history()) == ("v2", ["v3", "v1"])
    assert root.rollback().name == "v3"
    assert (root.current(), root.history(), root.rolled_back_from()) == ("v3", ["v1"], ["v2"])
    assert root.rollback().name == "v1"
    assert root.rolled_back_from() == ["v2", "v3"]
    with pytest.raises(ArtifactNotFoundError, match="has no previous version"):
        root.rollback()
    assert root.current() == "v1"
    root.publish("v3")
    assert (root.history(), root.rolled_back_from()) == (["v1"], ["v2"])
    with write_artifact(root.path / "v4", "index"):
        pass
    root.publish("v4")
    assert (root.history(), root.rolled_back_from()) == (["v3", "v1"], [])


def test_a_version_that_was_live_and_is_gone_is_passed_over(root: IndexRoot) -> None:
    for version in VERSIONS:
        root.publish(version)
    shutil.rmtree(root.path / "v2")
    assert root.rollback().name == "v1"


def test_a_damaged_version_is_neither_published_nor_rolled_back_to(root: IndexRoot) -> None:
    root.publish("v1")
    (root.path / "v2" / "vectors.bin").write_text("vB")
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        root.publish("v2")
    assert root.current() == "v1" and not list(root.path.glob(".CURRENT*"))
    root.publish("v3")
    (root.path / "v1" / "vectors.bin").write_text("vA")
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        root.rollback()
    assert (root.current(), root.history()) == ("v3", ["v1"])


@pytest.mark.parametrize(("name", "is_read"), [("vectors.bin", False), ("new.bin", True)])
def test_files_shared_with_the_live_version_are_not_read_again_and_others_are(
    root: IndexRoot, name: str, is_read: bool
) -> None:
    root.publish("v1")
    with write_artifact(root.path / "v4", "index") as writer:
        (writer.folder / "vectors.bin").hardlink_to(root.path / "v1" / "vectors.bin")
        (writer.folder / "new.bin").write_text("new")
        writer.known = {"vectors.bin": root.manifest("v1").files["vectors.bin"]}
    path = root.path / "v4" / name
    path.write_bytes(bytes(path.stat().st_size))
    if is_read:
        with pytest.raises(IntegrityError, match=f"v4/{name} is damaged"):
            root.publish("v4")
    else:
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


@pytest.mark.parametrize("content", [b"v9\n", b"../root/v1", b"", b"\xff"])
def test_a_current_file_that_names_no_version_is_refused_with_what_there_is(
    root: IndexRoot, content: bytes
) -> None:
    (root.path / "CURRENT").write_bytes(content)
    said = r"found v1, v2, v3; run `glow publish`|cannot be read"
    for read in (root.current, root.live):
        with pytest.raises(ArtifactNotFoundError, match=said):
            read()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_current_must_be_a_regular_file(root: IndexRoot, make: Callable[[Path], None]) -> None:
    make(root.path / "CURRENT")
    with pytest.raises(ArtifactNotFoundError, match="not a regular file"):
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


def test_a_version_that_is_a_link_is_refused(root: IndexRoot, tmp_path: Path) -> None:
    moved = (root.path / "v1").rename(tmp_path / "elsewhere")
    (root.path / "v1").symlink_to(moved)
    assert root.versions() == ["v2", "v3"]
    for refused in (root.publish, root.manifest, root.remove):
        with pytest.raises(ArtifactError, match=r"is a symbolic link|no version"):
            refused("v1")


@pytest.mark.parametrize("change", ["publish", "pin", "rollback"])
def test_a_full_disk_is_one_message_and_changes_nothing(root: IndexRoot, change: str) -> None:
    for version in VERSIONS:
        root.publish(version)
    before = (root.path / "CURRENT").read_bytes()
    arguments = [] if change == "rollback" else ["v1"]
    no_write = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = glow(change, *arguments, "--index-root", root.path, preexec_fn=no_write)
    assert done.returncode == DiskError.exit_code == 4, done.stderr
    assert done.stderr.startswith("glow: ") and done.stderr.count("\n") == 1
    assert "cannot write below" in done.stderr
    assert (root.path / "CURRENT").read_bytes() == before
    assert not [path for path in root.path.iterdir() if path.name.startswith(".CURRENT")]


def test_pins_are_kept_in_a_file_and_may_be_set_twice(root: IndexRoot) -> None:
    assert root.pinned() == []
    for version in ("v2", "v1", "v2"):
        root.pin(version)
    assert (root.path / "PINNED").read_text() == "v1\nv2\n"
    assert IndexRoot(root.path).pinned() == ["v1", "v2"]
    assert (root.unpin("v1"), root.unpin("v1"), root.pinned()) == (True, False, ["v2"])


def test_what_is_not_there_cannot_be_pinned(root: IndexRoot) -> None:
    with pytest.raises(ArtifactNotFoundError):
        root.pin("v9")
    with pytest.raises(ArtifactNotFoundError, match="not a version name"):
        root.pin("../v1")
    assert not (root.path / "PINNED").exists()
    nowhere = IndexRoot(root.path / "nowhere")
    assert nowhere.unpin("v1") is False and not nowhere.path.exists()


@pytest.mark.parametrize("content", [b"../v1\n", b"\xff\xfe", b"v1\n.hidden\n"])
def test_a_file_of_pins_that_cannot_be_read_stops_whoever_would_remove(
    root: IndexRoot, content: bytes
) -> None:
    (root.path / "PINNED").write_bytes(content)
    with pytest.raises(FormatError, match="PINNED"):
        root.remove("v3")
    assert "v3" in root.versions()


def test_a_version_is_taken_away_at_once_and_its_links_stay_whole(root: IndexRoot) -> None:
    (root.path / "v2" / "vectors.bin").unlink()
    os.link(root.path / "v3" / "vectors.bin", root.path / "v2" / "vectors.bin")
    aside = root.remove("v3")
    assert root.versions() == ["v1", "v2"] and aside.name.startswith(".removed-v3-")
    discard(aside)
    assert (root.path / "v2" / "vectors.bin").read_text() == "v3"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_live_and_pinned_versions_are_not_removed(root: IndexRoot, version: str) -> None:
    root.publish("v1")
    root.pin("v2")
    with pytest.raises(BuildError, match="live or pinned"):
        root.remove(version)
    assert root.versions() == VERSIONS
    with pytest.raises(ArtifactNotFoundError):
        root.remove("v9")


def test_a_manifest_can_be_added_to_until_it_is_published_and_stays_true(root: IndexRoot) -> None:
    root.publish("v1")
    before = root.manifest("v2")
    amended = root.amend("v2", {"gate": {"status": "passed"}})
    assert root.manifest("v2") == amended == verify(root.folder("v2"), "index")
    assert amended.parameters == {"kind": "flat", "gate": {"status": "passed"}}
    assert (amended.files, amended.created) == (before.files, before.created)
    assert sorted(path.name for path in root.folder("v2").iterdir()) == ["manifest.json", "vectors.bin"]
    root.publish("v2")
    for version in ("v1", "v2"):
        with pytest.raises(BuildError, match="was published"):
            root.amend(version, {"gate": {}})
    assert root.manifest("v1").parameters == {"kind": "flat"}


def test_what_a_gate_refused_is_published_only_once_somebody_overrode_it(root: IndexRoot) -> None:
    root.publish("v1")
    checks = [{"name": "a", "passed": True}, {"name": "b", "passed": False}]
    record = {"status": "failed", "time": "now", "checks": checks}
    root.amend("v2", {"gate": record})
    with pytest.raises(GateError, match="refused version v2 at now for b;") as refused:
        root.publish("v2")
    assert refused.value.figures == {"gate": record, "version": "v2"}
    assert root.current() == "v1"
    root.amend("v2", {"gate": {**record, "status": "forced"}})
    assert root.publish("v2").name == "v2"


def test_a_refusal_counts_whatever_its_checks_look_like_and_another_record_refuses_nothing(
    root: IndexRoot,
) -> None:
    for checks in (None, "x", [1]):
        root.amend("v2", {"gate": {"status": "failed", "checks": checks}})
        with pytest.raises(GateError):
            root.publish("v2")
    for version, record in (("v2", "failed"), ("v3", {})):
        root.amend(version, {"gate": record})
        root.publish(version)
