"""Writes an artifact folder atomically."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glow.artifact.making import folder_for
from glow.artifact.manifest import FORMAT_VERSION, MANIFEST_FILE, FileRecord, Kind, Manifest, file_records
from glow.errors import BuildError

__all__ = ["ArtifactWriter", "write_artifact"]


class ArtifactWriter:
    """An artifact in progress: write its files into `folder`, and set the members of its manifest.

    Attributes:
        folder: temporary folder next to the target; it becomes the artifact.
        hashes, parents, parameters, counts: members of the manifest.
        known: path -> record of files that are hard links to a verified artifact's files and need no new checksum.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[str, str] = {}
        self.parents: dict[str, object] = {}
        self.parameters: dict[str, object] = {}
        self.counts: dict[str, int] = {}
        self.known: dict[str, FileRecord] = {}


@contextmanager
def write_artifact(target: Path, kind: Kind, *, replace: bool = False) -> Iterator[ArtifactWriter]:
    """Writes an artifact folder: temporary folder, files, manifest, sync, rename.

    If the block raises, the temporary folder is removed and an older artifact at `target` stays unchanged.

    Args:
        target: folder to write; its name is the artifact's name.
        kind: checkpoint, model or index.
        replace: whether an existing folder may be replaced.

    Raises:
        BuildError: if `target` exists and `replace` is false.
    """
    if target.exists() and not replace:
        raise BuildError(f"{target} exists already; choose another name or remove it first")
    with folder_for(target) as folder:
        writer = ArtifactWriter(folder)
        yield writer
        manifest = Manifest(
            format=FORMAT_VERSION,
            kind=kind,
            name=target.name,
            hashes=writer.hashes,
            parents=writer.parents,
            parameters=writer.parameters,
            counts=writer.counts,
            files=file_records(folder, writer.known),
        )
        (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
        _sync_tree(folder)
        if target.exists():
            _exchange(folder, target)
        else:
            folder.rename(target)
        sync(target.parent)


def _exchange(folder: Path, target: Path) -> None:
    """Renames the old folder, puts the new one in its place, and removes the old one."""
    aside = folder.with_name(folder.name + "-old")
    target.rename(aside)
    try:
        folder.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Flushes a file or folder to disk; without it, a rename could survive a crash and the content not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
