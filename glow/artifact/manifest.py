"""Artifact folders: the manifest, which has the SHA-256 of each file, its checks, and atomic writing."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from glow import __version__
from glow.artifact.lock import folder_for
from glow.errors import ArtifactNotFoundError, BuildError, FormatError, IntegrityError, MismatchError
from glow.options import StrictModel, describe

MANIFEST_FILE = "manifest.json"
"""Format, origin, hashes and checksums of all other files."""
Kind = Literal["checkpoint", "model", "reranker", "index"]
FORMATS: Mapping[str, int] = {"checkpoint": 1, "model": 1, "reranker": 1, "index": 2}


class FileRecord(StrictModel):
    """Size and SHA-256 (hexadecimal) of one file."""

    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class FileKey(NamedTuple):
    """Identity of an unchanged file on this machine; hard links share it."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> "FileKey":
        """The key of a file."""
        status = path.stat()
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


KnownFiles = Mapping[FileKey, str]
"""Verified files -> their SHA-256."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Manifest(StrictModel):
    """The manifest of an artifact folder."""

    format: int  # version of the directory's layout
    kind: Kind  # checkpoint, model, reranker or index
    name: str  # of a model or re-ranker, or an index's version
    created: str = Field(default_factory=_now)  # UTC time of writing, ISO 8601
    tool: str = f"glow {__version__}"  # the GLOW version that wrote it
    hashes: dict[str, str] = Field(default_factory=dict)  # `model` and `terms` (ARCHITECTURE.md section 3)
    parents: dict[str, Any] = Field(default_factory=dict)  # what it was made from, by name and hash
    parameters: dict[str, Any] = Field(default_factory=dict)  # the options that made it
    counts: dict[str, int] = Field(default_factory=dict)  # documents, dimensions and other figures
    files: dict[str, FileRecord] = Field(default_factory=dict)  # path -> record, without the manifest

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ValueError(f"file {name!r} is outside the folder")
        return files

    def to_bytes(self) -> bytes:
        """The manifest file's only valid form: JSON with sorted keys and a checksum of all others."""
        body = self.model_dump()
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        checksum = hashlib.sha256(canonical).hexdigest()
        return json.dumps({**body, "checksum": checksum}, indent=2, sort_keys=True).encode() + b"\n"

    @property
    def hash(self) -> str:
        """SHA-256 of the manifest file, which identifies the artifact and its files."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def read_manifest(folder: Path, kind: Kind) -> Manifest:
    """Reads and checks a folder's manifest, but not its files."""
    path = folder / MANIFEST_FILE
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArtifactNotFoundError(
            f"no {kind} at {folder}: expected a folder with {MANIFEST_FILE} ({error.strerror})"
        ) from error
    try:
        body = json.loads(raw)
        version, expected = body.get("format"), FORMATS.get(str(body.get("kind")), FORMATS[kind])
        if version != expected:
            newer = isinstance(version, int) and version > expected
            remedy = "use a newer GLOW" if newer else "build it again with this GLOW"
            raise FormatError(
                f"{kind} {folder.name}: {MANIFEST_FILE} has format {version!r}, expected {expected}; {remedy}"
            )
        body.pop("checksum", None)
        manifest = Manifest.model_validate(body)
    except ValidationError as error:
        raise FormatError(f"{folder.name}/{MANIFEST_FILE} is not valid: {describe(error)}") from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise IntegrityError(
            f"{folder.name}/{MANIFEST_FILE} is damaged: {error}; restore the folder"
        ) from error
    if manifest.to_bytes() != raw:
        raise IntegrityError(
            f"{folder.name}/{MANIFEST_FILE} is damaged: its checksum does not match its content; restore the folder"
        )
    if manifest.kind != kind:
        raise MismatchError(f"{folder.name} is of kind {manifest.kind}, expected {kind}")
    return manifest


def known_files(folder: Path, manifest: Manifest) -> dict[FileKey, str]:
    """Known files of a verified artifact, for `verify` of another artifact that shares some of them."""
    known = {}
    for name, record in manifest.files.items():
        try:
            known[FileKey.of(folder / name)] = record.sha256
        except OSError:
            continue
    return known


def verify(folder: Path, kind: Kind, known: KnownFiles | None = None) -> Manifest:
    """Reads the manifest, and checks size and SHA-256 of every listed file.

    Other files, such as a model card, do not belong to the artifact and must not be read.
    """
    manifest = read_manifest(folder, kind)
    for name, record in sorted(manifest.files.items()):
        path = folder / name
        if _through_link(folder, name) or not path.is_file():
            raise IntegrityError(f"{folder.name}/{name} is missing or not a regular file; restore the folder")
        size = path.stat().st_size
        if size != record.size_bytes:
            raise IntegrityError(
                f"{folder.name}/{name} has {size} bytes, expected {record.size_bytes}; restore the folder"
            )
        if known and known.get(FileKey.of(path)) == record.sha256:
            continue
        digest = file_sha256(path)
        if digest != record.sha256:
            raise IntegrityError(
                f"{folder.name}/{name} is damaged: SHA-256 {digest[:12]}…, expected {record.sha256[:12]}…; "
                "restore the folder"
            )
    return manifest


def _through_link(folder: Path, name: str) -> bool:
    """Whether a file or one of its parents in the folder is a symbolic link, which could change after the check."""
    path = folder / name
    return any(
        part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder
    )


def file_records(folder: Path, known: Mapping[str, FileRecord] | None = None) -> dict[str, FileRecord]:
    """Size and checksum of every file below `folder`, except the manifest; files that are `known` by path are not read."""
    records = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST_FILE:
            name = path.relative_to(folder).as_posix()
            record = known.get(name) if known else None
            records[name] = record or FileRecord(size_bytes=path.stat().st_size, sha256=file_sha256(path))
    return records


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as hexadecimal digits, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ArtifactWriter:
    """An artifact in progress: write its files into `folder`, and set the members of its manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[str, str] = {}
        self.parents: dict[str, object] = {}
        self.parameters: dict[str, object] = {}
        self.counts: dict[str, int] = {}
        self.known: dict[str, FileRecord] = {}  # of hard links to a verified artifact's files


@contextmanager
def write_artifact(target: Path, kind: Kind, *, replace: bool = False) -> Iterator[ArtifactWriter]:
    """Writes an artifact folder: temporary folder, files, manifest, sync, rename.

    If the block raises, the temporary folder is removed and an older artifact at `target` stays unchanged.
    """
    if target.exists() and not replace:
        raise BuildError(f"{target} exists already; choose another name or remove it first")
    with folder_for(target) as folder:
        writer = ArtifactWriter(folder)
        yield writer
        manifest = Manifest(
            format=FORMATS[kind],
            kind=kind,
            name=target.name,
            hashes=writer.hashes,
            parents=writer.parents,
            parameters=writer.parameters,
            counts=writer.counts,
            files=file_records(folder, writer.known),
        )
        (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
        for path in (*folder.rglob("*"), folder):
            sync(path)
        aside = folder.with_name(folder.name + "-old")
        if target.exists():
            target.rename(aside)
        try:
            folder.rename(target)
        except OSError:
            if aside.exists():
                aside.rename(target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
        sync(target.parent)


def sync(path: Path) -> None:
    """Flushes a file or folder to disk; without it, a rename could survive a crash and the content not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, folder: Path | None = None) -> None:
    """Atomically writes a file; a kill leaves at most a dot-file, in `folder` or beside it."""
    temporary = (folder or path.parent) / f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        temporary.write_bytes(content)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
