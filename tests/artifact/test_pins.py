"""Pinned versions stay, what is removed vanishes at once, and only an unpublished manifest can be added to."""

import os
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, verify, write_artifact
from glow.artifact.lock import discard
from glow.errors import ArtifactNotFoundError, BuildError, FormatError, GateError


@pytest.fixture
def root(tmp_path: Path) -> IndexRoot:
    for version in ("v1", "v2", "v3"):
        with write_artifact(tmp_path / "root" / version, "index") as writer:
            (writer.folder / "vectors.bin").write_text(version)
            writer.parameters = {"kind": "flat"}
    found = IndexRoot(tmp_path / "root")
    found.publish("v1")
    return found


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
    root.pin("v2")
    with pytest.raises(BuildError, match="live or pinned"):
        root.remove(version)
    assert root.versions() == ["v1", "v2", "v3"]
    with pytest.raises(ArtifactNotFoundError):
        root.remove("v9")


def test_an_unpublished_manifest_can_be_added_to_and_stays_true(root: IndexRoot) -> None:
    before = root.manifest("v2")
    amended = root.amend("v2", {"gate": {"status": "passed"}})
    assert root.manifest("v2") == amended == verify(root.folder("v2"), "index")
    assert amended.parameters == {"kind": "flat", "gate": {"status": "passed"}}
    assert (amended.files, amended.created) == (before.files, before.created)
    assert sorted(path.name for path in root.folder("v2").iterdir()) == ["manifest.json", "vectors.bin"]
    root.publish("v2")


def test_what_was_published_is_not_added_to(root: IndexRoot) -> None:
    root.publish("v2")
    for version in ("v1", "v2"):
        with pytest.raises(BuildError, match="was published"):
            root.amend(version, {"gate": {}})
    assert root.manifest("v1").parameters == {"kind": "flat"}


def test_live_is_none_only_where_nothing_was_ever_published(root: IndexRoot) -> None:
    assert (root.live(), IndexRoot(root.path / "x").live()) == ("v1", None)
    (root.path / "CURRENT").write_text("gone\n")
    with pytest.raises(ArtifactNotFoundError):
        root.live()


def test_what_a_gate_refused_is_published_only_once_somebody_overrode_it(root: IndexRoot) -> None:
    checks = [{"name": "a", "passed": True}, {"name": "b", "passed": False}]
    record = {"status": "failed", "time": "now", "checks": checks}
    root.amend("v2", {"gate": record})
    with pytest.raises(GateError, match="refused version v2 at now for b;") as refused:
        root.publish("v2")
    assert refused.value.figures == {"gate": record, "version": "v2"}
    assert root.current() == "v1"
    root.amend("v2", {"gate": {**record, "status": "forced"}})
    assert root.publish("v2").name == "v2"


@pytest.mark.parametrize("record", ["failed", {}, {"status": "passed"}, None])
def test_a_record_of_another_form_refuses_nothing(root: IndexRoot, record: object) -> None:
    root.amend("v2", {"gate": record})
    root.publish("v2")


@pytest.mark.parametrize("checks", [None, "x", [1]])
def test_a_refusal_counts_whatever_its_checks_look_like(root: IndexRoot, checks: object) -> None:
    root.amend("v2", {"gate": {"status": "failed", "checks": checks}})
    with pytest.raises(GateError):
        root.publish("v2")
