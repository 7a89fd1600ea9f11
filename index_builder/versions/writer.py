"""Writes versions of builds, deltas, compactions and tunings.

Versions never change, so an addition makes a new version. Its unchanged files are hard links to the older version's,
which take no space, and either version can be removed.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from glow.artifact import ArtifactWriter, FileRecord, IndexRoot, Manifest, read_manifest, write_artifact
from glow.errors import BuildError, GlowError

Counts = Mapping[str, int]
NOT_INHERITED = "gate"
"""The parameter of the gate's verdict, which a new version does not inherit."""


@contextmanager
def disk_errors(output: Path) -> Iterator[None]:
    """Turns disk errors during writing of an index root into a `BuildError`."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BuildError(
            f"cannot write the index below {output}: {reason}; the live index is unchanged"
        ) from error


class VersionWriter:
    """Writes one version, which becomes visible only when it is complete."""

    def __init__(self, root: IndexRoot, version: str | None = None) -> None:
        self.root = root
        self.version = version or root.new_version()  # its name; otherwise one from the present time
        self.folder = root.folder(self.version)

    def write(self) -> AbstractContextManager[ArtifactWriter]:
        """Opens a temporary directory, which becomes the version if the block succeeds."""
        return write_artifact(self.folder, "index")

    def open(self, opens: Callable[[Path], object]) -> None:
        """Opens the finished version as its users do; removes it if it cannot be opened."""
        try:
            opens(self.folder)
        except BaseException as error:
            shutil.rmtree(self.folder)
            if not isinstance(error, GlowError):
                raise
            raise BuildError(f"the new version cannot be opened and was removed: {error}") from error

    def publish(self, opens: Callable[[Path], object]) -> None:
        """Opens the new files of the version and makes it live; removes it if that fails."""
        try:
            opens(self.folder)
            self.root.publish(self.version)
        except BaseException:
            if self.root.current() != self.version:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise


def describe_heir(
    writer: ArtifactWriter,
    older: Manifest,
    parents: Mapping[str, object],
    parameters: Mapping[str, object],
    counts: Counts,
) -> None:
    """Fills the manifest of a version that was derived from another one."""
    writer.hashes = older.hashes
    writer.parents = {**parents, "version": {"name": older.name, "hash": older.hash}}
    inherited = {name: value for name, value in older.parameters.items() if name != NOT_INHERITED}
    writer.parameters = {**inherited, **parameters}
    writer.counts = dict(counts)


def derive(
    root: IndexRoot,
    source: str,
    parents: Mapping[str, object],
    parameters: Mapping[str, object],
    add: Callable[[Path], Counts | None],
    keep: Callable[[str], bool] = lambda name: True,
    version: str | None = None,  # the new version's name; None: a name from the present time
) -> str:
    """Makes a version with the files of another. Returns the new version's name."""
    folder = root.folder(source)
    manifest = read_manifest(folder, "index")
    target = VersionWriter(root, version)
    files = {name: record for name, record in manifest.files.items() if keep(name)}
    with disk_errors(root.path), target.write() as writer:
        linked = link_files(folder, files, writer.folder)
        counts = add(writer.folder)
        for name, record in linked.items():  # without those that `add` replaced
            if (writer.folder / name).is_file() and (writer.folder / name).samefile(folder / name):
                writer.known[name] = record
        together = {**manifest.parents, **parents}
        describe_heir(writer, manifest, together, parameters, {**manifest.counts, **(counts or {})})
    return target.version


def link_files(source: Path, files: Mapping[str, FileRecord], target: Path) -> dict[str, FileRecord]:
    """Puts a version's files (path -> record) into a new one; returns those that were linked, not copied."""
    return {name: record for name, record in files.items() if link_file(source / name, target / name)}


def link_file(source: Path, target: Path) -> bool:
    """Makes a hard link, or a copy if the disk has none; returns whether it is a link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or no support for hard links
        shutil.copyfile(source, target)
        return False
    return True
