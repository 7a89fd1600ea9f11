"""Manifests, checks of files, and artifact folders that are whole or not there."""

import hashlib
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
from tests.artifact.conftest import flip, remake


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


@pytest.mark.parametrize(
    ("moved", "name"), [("vectors.bin", r"vectors\.bin"), ("terms", r"terms/words\.bin")]
)
def test_the_same_content_behind_a_link_is_refused(
    artifact: Path, tmp_path: Path, moved: str, name: str
) -> None:
    shutil.move(artifact / moved, tmp_path / "elsewhere")
    (artifact / moved).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match=name):
        verify(artifact, "index")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])  # opening a pipe would wait for ever
def test_what_is_no_file_is_refused_in_its_place(artifact: Path, make: Callable[[Path], None]) -> None:
    (artifact / "empty").unlink()
    make(artifact / "empty")
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


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (3, "format 3, expected 2; use a newer GLOW"),
        *((each, "build it again") for each in (0, None, "2", 1.5, [2])),
    ],
)
def test_another_format_says_what_to_do(artifact: Path, found: object, said: str) -> None:
    remake(artifact, lambda body: body.update(format=found))
    with pytest.raises(FormatError, match=said):
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


def test_what_is_of_another_kind_or_not_there_is_told(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="v1 is of kind index, expected model"):
        verify(artifact, "model")
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


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_crash_in_the_block_leaves_nothing_new(artifact: Path, error: type[BaseException]) -> None:
    before = verify(artifact, "index")
    for name in ("v1", "v2"):
        with pytest.raises(error), write_artifact(artifact.with_name(name), "index", replace=True) as writer:
            (writer.folder / "half").write_text("half")
            raise error
    assert verify(artifact, "index") == before
    assert names(artifact.parent) == ["v1"]


def test_nothing_is_visible_before_the_block_ends(tmp_path: Path) -> None:
    with write_artifact(tmp_path / "deep" / "v1", "model") as writer:
        (writer.folder / "file").write_text("x")
        assert not (tmp_path / "deep" / "v1").exists()
    assert verify(tmp_path / "deep" / "v1", "model").kind == "model"


def test_an_existing_artifact_is_replaced_whole_and_only_if_asked(artifact: Path) -> None:
    before = verify(artifact, "index")
    with pytest.raises(BuildError, match="exists already"), write_artifact(artifact, "index"):
        pass
    assert verify(artifact, "index") == before
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
