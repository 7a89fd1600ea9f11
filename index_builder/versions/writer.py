"""Writing versions: one writer for builds, deltas, compactions and tunings.

Versions never change, so what is added to one makes a version of its own. Files that stay are hard links to the older version's
where the disk can do that, so they take no more room, and removing either version leaves the other whole.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from glow.artifact import ArtifactWriter, FileRecord, IndexRoot, Manifest, read_manifest, write_artifact
from glow.errors import BuildError, GlowError

__all__ = ["VersionWriter", "derive", "describe_heir", "disk_errors", "link_files"]

Counts = Mapping[str, int]
NOT_INHERITED = "gate"
"""The parameter that a verdict is kept in: a gate judged the older version, not the new one."""


@contextmanager
def disk_errors(output: Path) -> Iterator[None]:
    """Makes errors of the disk, met while an index root is written, errors of the command.

    Raises:
        BuildError: if the disk is full or fails; the live version is unchanged.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BuildError(
            f"cannot write the index below {output}: {reason}; the live index is unchanged"
        ) from error


class VersionWriter:
    """One version in the making: nothing of it is visible before it is whole.

    Args:
        root: where it will lie.
        version: its name; None: one that says when it was made.

    Attributes:
        root, version: as given or made.
        folder: where it will lie.
    """

    def __init__(self, root: IndexRoot, version: str | None = None) -> None:
        self.root = root
        self.version = version or root.new_version()
        self.folder = root.folder(self.version)

    def write(self) -> AbstractContextManager[ArtifactWriter]:
        """A temporary folder to fill, which becomes the version when the block ends well."""
        return write_artifact(self.folder, "index")

    def open(self, opens: Callable[[Path], object]) -> None:
        """Opens the finished version as its users will; one that cannot be opened is removed.

        Raises:
            BuildError: if it cannot be opened.
        """
        try:
            opens(self.folder)
        except BaseException as error:
            shutil.rmtree(self.folder)
            if not isinstance(error, GlowError):
                raise
            raise BuildError(f"the new version cannot be opened and was removed: {error}") from error

    def publish(self, opens: Callable[[Path], object]) -> None:
        """Opens what is new of the version and makes it the live one; it is removed unless it is live by then."""
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
    """Fills the manifest of a version that was made from another one.

    Args:
        writer: of the new version.
        older: manifest of the one before.
        parents: all but `version`, which is the older one.
        parameters: added to those that it inherits.
        counts: what the new version holds.
    """
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
    version: str | None = None,
) -> str:
    """Makes a version with the files of another.

    Args:
        root: where both lie.
        source: the older version, which was verified before; its checksums are taken over for the files that stay.
        parents, parameters: added to those in the manifest of the older one.
        add: writes files into the new folder; a file that is there already may be replaced, not changed. Returns
            counts that differ from those of the older version.
        keep: which files of the older version stay, by their path in it.
        version: the new version's name; None: one that says when it was made.

    Returns:
        The new version's name.

    Raises:
        ArtifactError: if the older version has no readable manifest.
        BuildError: if the disk cannot hold the new one.
    """
    folder = root.folder(source)
    manifest = read_manifest(folder, "index")
    target = VersionWriter(root, version)
    kept = {name: record for name, record in manifest.files.items() if keep(name)}
    with disk_errors(root.path), target.write() as writer:
        linked = link_files(folder, kept, writer.folder)
        counts = add(writer.folder)
        writer.known = {
            name: record for name, record in linked.items() if _is_link(folder / name, writer.folder / name)
        }
        describe_heir(
            writer,
            manifest,
            {**manifest.parents, **parents},
            parameters,
            {**manifest.counts, **(counts or {})},
        )
    return target.version


def link_files(source: Path, files: Mapping[str, FileRecord], target: Path) -> dict[str, FileRecord]:
    """Puts files of a version into another in the making, as hard links where the disk can do that.

    Args:
        source: the older version's folder.
        files: path in it -> record in its manifest.
        target: the folder in the making.

    Returns:
        The records of those that are links, for `ArtifactWriter.known`.
    """
    for name in files:
        _link(source / name, target / name)
    return {name: record for name, record in files.items() if _is_link(source / name, target / name)}


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)


def _is_link(source: Path, target: Path) -> bool:
    return target.is_file() and target.samefile(source)
