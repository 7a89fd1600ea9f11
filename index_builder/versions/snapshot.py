"""Exports a version as one archive, and imports it without trust in the archive.

The archive is a tar of one directory, named like the version: the manifest first, then its files by name. The import
accepts only these files, each once and of the size in the manifest. It writes them to a temporary directory, which
is compared with the manifest and renamed. Equal versions give equal bytes.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from glow.artifact import MANIFEST_FILE, IndexRoot, Manifest, folder_for, read_manifest, sync, verify
from glow.errors import BuildError, FormatError, IntegrityError, MismatchError
from glow_index_builder.versions.tar import Member, Readable, end_of_archive, header, padding, read_members

__all__ = ["Imported", "export_version", "import_version"]

MAX_MANIFEST_BYTES = 4 << 20
"""Largest manifest. It has a few hundred bytes per file; reading 15 MB of empty lists took 400 MB of memory."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        manifest: the version's manifest.
        was_there: whether the root already had it with the same hash.
    """

    manifest: Manifest
    was_there: bool


def export_version(root: IndexRoot, version: str, target: BinaryIO) -> Manifest:
    """Writes a version as a tar archive, and compares each file with the manifest meanwhile.

    Args:
        root: the index root.
        version: its name.
        target: the stream to write to.

    Raises:
        ArtifactError: if the version is missing or damaged; the archive is then incomplete.
        OSError: if it cannot be written.
    """
    folder = root.folder(version)
    manifest = read_manifest(folder, "index")
    raw = manifest.to_bytes()
    target.write(header(f"{version}/{MANIFEST_FILE}", len(raw)) + raw + padding(len(raw)))
    for name, record in sorted(manifest.files.items()):
        target.write(header(f"{version}/{name}", record.size_bytes))
        digest, size = hashlib.sha256(), 0
        for chunk in _chunks(folder, name):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
        if size != record.size_bytes or digest.hexdigest() != record.sha256:
            raise IntegrityError(
                f"{version}/{name} is damaged: it does not match its manifest; restore the directory"
            )
        target.write(padding(size))
    target.write(end_of_archive())
    return manifest


def import_version(root: IndexRoot, source: Readable) -> Imported:
    """Reads a version from an archive into a root, which is created if missing; does not publish it.

    Args:
        root: the target root.
        source: a plain tar archive, read in order and only once.

    Raises:
        FormatError: if it is not an archive of a version, or holds anything else.
        IntegrityError: if a file is missing or damaged, or the archive ends too early.
        MismatchError: if the root has a different version of this name.
        BuildError: if the disk is full or cannot be written.
        BusyError, ReadOnlyError: as `IndexRoot.publish`.
    """
    members = read_members(source)
    first = next(members, None)
    version, _, name = first.name.partition("/") if first else ("", "", "")
    if first is None or first.is_folder or name != MANIFEST_FILE or first.size_bytes > MAX_MANIFEST_BYTES:
        raise FormatError(
            f"the archive does not begin with a version's {MANIFEST_FILE}; make it with `glow export-index`"
        )
    target = root.folder(version)
    with root.locked():  # reports at once if the root cannot be written
        pass
    try:
        with folder_for(target) as folder:
            _write(folder / MANIFEST_FILE, first)
            manifest = read_manifest(folder, "index")
            if manifest.name != version:
                raise FormatError(
                    f"the archive's folder is {version!r}, its manifest names {manifest.name!r}"
                )
            if _is_there(target, manifest):
                return Imported(manifest, was_there=True)
            _require_room(root.path, manifest)
            _extract(members, manifest, folder)
            verify(folder, "index")
            return Imported(manifest, was_there=not _settle(root, folder, target, manifest))
    except OSError as error:
        reason = error.strerror or str(error)
        raise BuildError(f"cannot write below {root.path}: {reason}; the live index is unchanged") from error


def _extract(members: Iterator[Member], manifest: Manifest, folder: Path) -> None:
    """Writes the files that the manifest names, and refuses all others."""
    missing = dict(manifest.files)
    folders = {f"{parent}" for name in missing for parent in Path(name).parents}
    for member in members:
        top, _, name = member.name.partition("/")
        if member.is_folder and top == manifest.name and (name or ".") in folders:
            continue
        record = missing.pop(name, None)
        if member.is_folder or top != manifest.name or record is None:
            raise FormatError(
                f"the archive holds {member.name[:200]!r}, which its manifest does not name, or not twice; "
                "expected the files of one version"
            )
        if member.size_bytes != record.size_bytes:
            raise FormatError(
                f"{name} in the archive has {member.size_bytes} bytes, expected {record.size_bytes} as its manifest says"
            )
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            _write(folder / name, member)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise FormatError(f"the archive's manifest names {name!r} within another file") from error
    if missing:
        raise IntegrityError(f"the archive lacks {min(missing)}; export the version again")


def _write(path: Path, member: Member) -> None:
    """Writes a new file; never follows or changes an existing one."""
    with path.open("xb") as file:
        for chunk in member.chunks():
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _settle(root: IndexRoot, folder: Path, target: Path, manifest: Manifest) -> bool:
    """Renames the version to its name; False if another import did so meanwhile."""
    for path in sorted(each for each in folder.rglob("*") if each.is_dir()):
        sync(path)
    sync(folder)
    with root.locked():
        if _is_there(target, manifest):
            return False
        folder.rename(target)
        sync(target.parent)
    return True


def _is_there(target: Path, manifest: Manifest) -> bool:
    """Whether the root has the version already.

    Raises:
        MismatchError: if it has a different version of that name.
    """
    if not target.exists():
        return False
    there = read_manifest(target, "index")
    if there.hash != manifest.hash:
        raise MismatchError(
            f"{target.parent} has another version {target.name}: hash {there.hash[:12]}, the archive's is "
            f"{manifest.hash[:12]}; import it into another root, or remove the one that is there"
        )
    return True


def _require_room(root: Path, manifest: Manifest) -> None:
    wanted = sum(record.size_bytes for record in manifest.files.values())
    free = shutil.disk_usage(root).free
    if wanted > free:
        raise BuildError(
            f"the version takes {wanted} bytes, and the disk of {root} has {free}; make room first"
        )


def _chunks(folder: Path, name: str) -> Iterator[bytes]:
    try:
        with (folder / name).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise IntegrityError(
            f"{folder.name}/{name} cannot be read ({error.strerror}); restore the folder"
        ) from error
