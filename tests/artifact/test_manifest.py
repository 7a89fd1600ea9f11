"""Manifests, checks of files, and artifact folders that are whole or not there."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import MANIFEST_FILE, read_manifest, verify, write_artifact
from glow.artifact.manifest import FileKey, known_files
from glow.errors import (
    ArtifactError,
    ArtifactNotFoundError,
    BuildError,
    FormatError,
    IntegrityError,
    MismatchError,
)
from tests.artifact.conftest import flip


def remake(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest and gives it a checksum that fits again, as somebody with intent would."""
    path = folder / MANIFEST_FILE
    body = json.loads(path.read_bytes())
    del body["checksum"]
    change(body)
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body["checksum"] = hashlib.sha256(canonical).hexdigest()
    path.write_bytes(json.dumps(body, indent=2, sort_keys=True).encode() + b"\n")


def test_a_manifest_is_read_as_it_was_written(artifact: Path) -> None:
    manifest = verify(artifact, "index")
    assert (manifest.format, manifest.kind, manifest.name) == (2, "index", "v1")
    assert manifest.hashes == {"model": "a" * 64}
    assert manifest.parents == {"model": {"name": "toy"}}
    assert manifest.parameters == {"kind": "flat", "share": 0.5}
    assert manifest.counts == {"documents": 3}
    sizes = {name: record.size_bytes for name, record in manifest.files.items()}
    assert sizes == {"vectors.bin": 7, "terms/words.bin": 14, "empty": 0}
    assert manifest.files["vectors.bin"].sha256 == hashlib.sha256(b"vectors").hexdigest()
    assert manifest.to_bytes() == (artifact / MANIFEST_FILE).read_bytes()
    assert manifest.hash == hashlib.sha256((artifact / MANIFEST_FILE).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["vectors.bin", "terms/words.bin"])
def test_a_changed_byte_anywhere_in_a_file_is_refused_by_name(artifact: Path, name: str) -> None:
    for position in range((artifact / name).stat().st_size):
        flip(artifact / name, position)
        with pytest.raises(IntegrityError, match=name):
            verify(artifact, "index")
        flip(artifact / name, position)
    verify(artifact, "index")


def test_a_changed_byte_anywhere_in_the_manifest_is_refused_by_name(artifact: Path) -> None:
    path = artifact / MANIFEST_FILE
    for position in range(0, path.stat().st_size, 5):
        flip(path, position)
        with pytest.raises(ArtifactError, match=MANIFEST_FILE):
            read_manifest(artifact, "index")
        flip(path, position)
    read_manifest(artifact, "index")


def test_a_truncated_manifest_is_refused_at_any_length(artifact: Path) -> None:
    path = artifact / MANIFEST_FILE
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(IntegrityError, match=MANIFEST_FILE):
            read_manifest(artifact, "index")


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_of_anything_else_is_refused(artifact: Path, content: bytes) -> None:
    (artifact / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(ArtifactError, match=MANIFEST_FILE):
        read_manifest(artifact, "index")


@pytest.mark.parametrize("name", ["vectors.bin", "terms/words.bin", "empty"])
def test_a_missing_file_is_refused_by_name(artifact: Path, name: str) -> None:
    (artifact / name).unlink()
    with pytest.raises(IntegrityError, match=name):
        verify(artifact, "index")


def test_a_truncated_or_grown_file_is_refused_with_both_sizes(artifact: Path) -> None:
    for content, size in ((b"vector", 6), (b"vectors!", 8)):
        (artifact / "vectors.bin").write_bytes(content)
        with pytest.raises(IntegrityError, match=f"vectors.bin has {size} bytes, expected 7"):
            verify(artifact, "index")


def test_a_file_of_the_same_content_behind_a_link_is_refused(artifact: Path, tmp_path: Path) -> None:
    shutil.move(artifact / "vectors.bin", tmp_path / "elsewhere")
    (artifact / "vectors.bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        verify(artifact, "index")


def test_a_folder_of_the_same_content_behind_a_link_is_refused(artifact: Path, tmp_path: Path) -> None:
    shutil.move(artifact / "terms", tmp_path / "elsewhere")
    (artifact / "terms").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match=r"terms/words\.bin"):
        verify(artifact, "index")


def test_a_folder_or_a_pipe_in_place_of_a_file_is_refused(artifact: Path) -> None:
    (artifact / "empty").unlink()
    (artifact / "empty").mkdir()
    with pytest.raises(IntegrityError, match="empty"):
        verify(artifact, "index")
    (artifact / "empty").rmdir()
    os.mkfifo(artifact / "empty")  # opening it would wait for ever
    with pytest.raises(IntegrityError, match="empty"):
        verify(artifact, "index")


def test_a_file_that_the_manifest_does_not_name_is_no_part_of_the_artifact(artifact: Path) -> None:
    """A model card may be added later; loaders read only what the manifest names."""
    (artifact / "README.md").write_text("a card")
    assert "README.md" not in verify(artifact, "index").files


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "terms/../../outside", "..", "."])
def test_a_name_that_leads_out_of_the_folder_is_refused(artifact: Path, name: str) -> None:
    record = {"size_bytes": 7, "sha256": hashlib.sha256(b"vectors").hexdigest()}
    (artifact.parent / "outside").write_bytes(b"vectors")
    remake(artifact, lambda body: body["files"].update({name: record}))
    with pytest.raises(ArtifactError, match="outside the folder"):
        verify(artifact, "index")


def test_a_newer_format_says_that_a_newer_glow_may_read_it(artifact: Path) -> None:
    remake(artifact, lambda body: body.update(format=3))
    with pytest.raises(FormatError, match="format 3, expected 2; use a newer GLOW"):
        verify(artifact, "index")


@pytest.mark.parametrize("format_version", [0, None, "2", 1.5, [2]])
def test_another_format_says_to_build_again(artifact: Path, format_version: object) -> None:
    remake(artifact, lambda body: body.update(format=format_version))
    with pytest.raises(FormatError, match="expected 2; build it again"):
        verify(artifact, "index")


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"counts": {"documents": "three"}},
        {"files": {"x": {"size_bytes": -1, "sha256": "0" * 64}}},
        {"files": {"x": {"size_bytes": 1, "sha256": "zz"}}},
        {"hashes": None},
    ],
)
def test_a_manifest_with_other_keys_or_values_is_refused(artifact: Path, change: dict[str, Any]) -> None:
    remake(artifact, lambda body: body.update(change))
    with pytest.raises(FormatError, match=f"{MANIFEST_FILE} is not valid: {next(iter(change))}"):
        verify(artifact, "index")


def test_an_artifact_of_another_kind_is_refused(artifact: Path) -> None:
    with pytest.raises(MismatchError, match="v1 is of kind index, expected model"):
        verify(artifact, "model")


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError, match=r"no model at .*nowhere"):
        verify(tmp_path / "nowhere", "model")


def test_a_file_that_was_verified_before_is_not_read_again(artifact: Path) -> None:
    name = "vectors.bin"
    record = read_manifest(artifact, "index").files[name]
    known = known_files(artifact, read_manifest(artifact, "index"))
    path, times = artifact / name, (artifact / name).stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    with pytest.raises(IntegrityError, match="is damaged"):
        verify(artifact, "index", known)  # a change tells by its time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert verify(artifact, "index", known).files[name] == record
    with pytest.raises(IntegrityError, match="is damaged"):
        verify(artifact, "index", {**known, FileKey.of(path): "0" * 64})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_crash_in_the_block_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), write_artifact(tmp_path / "v1", "index") as writer:
        (writer.folder / "half").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_a_crash_in_the_block_leaves_an_older_artifact_as_it_was(artifact: Path) -> None:
    before = verify(artifact, "index")
    with pytest.raises(ValueError), write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "half").write_text("half")
        raise ValueError
    assert verify(artifact, "index") == before
    assert names(artifact.parent) == ["v1"]


def test_nothing_is_visible_before_the_block_ends(tmp_path: Path) -> None:
    with write_artifact(tmp_path / "deep" / "v1", "model") as writer:
        (writer.folder / "file").write_text("x")
        assert not (tmp_path / "deep" / "v1").exists()
    assert verify(tmp_path / "deep" / "v1", "model").kind == "model"


def test_an_existing_artifact_is_not_overwritten_unless_asked(artifact: Path) -> None:
    before = verify(artifact, "index")
    with pytest.raises(BuildError, match="exists already"), write_artifact(artifact, "index"):
        pass
    assert verify(artifact, "index") == before


def test_an_artifact_is_replaced_whole(artifact: Path) -> None:
    with write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "other").write_text("x")
    assert list(verify(artifact, "index").files) == ["other"]
    assert names(artifact) == ["manifest.json", "other"]
    assert names(artifact.parent) == ["v1"]


def test_a_replacement_that_cannot_move_in_gives_the_old_one_back(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may fail between the two renames; the model must not be gone then."""
    before = verify(artifact, "index")
    rename = Path.rename

    def fail_to_move_in(self: Path, target: Path) -> Path:
        if target == artifact and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_move_in)
    with pytest.raises(OSError), write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "other").write_text("x")
    assert verify(artifact, "index") == before
    assert names(artifact.parent) == ["v1"]


def test_another_user_can_read_an_artifact(artifact: Path) -> None:
    """A service often runs as another user than the builder."""
    assert stat.S_IMODE(artifact.stat().st_mode) == 0o755
