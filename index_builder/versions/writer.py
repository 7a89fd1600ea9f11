"""A new version from an older one: the same files, and some more.

Versions never change, so what is added makes a version of its own. Files that stay are hard links to the older version's
where the disk can do that, so they take no more room, and removing either version leaves the other whole.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from glow.artifact import FileRecord, IndexRoot, read_manifest, write_artifact
from glow.errors import BuildError

__all__ = ["derive", "link_files"]

Counts = Mapping[str, int]


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
    version = version or root.new_version()
    kept = {name: record for name, record in manifest.files.items() if keep(name)}
    try:
        with write_artifact(root.folder(version), "index") as writer:
            linked = link_files(folder, kept, writer.folder)
            counts = add(writer.folder)
            writer.known = {
                name: record
                for name, record in linked.items()
                if _is_link(folder / name, writer.folder / name)
            }
            writer.hashes, writer.counts = manifest.hashes, {**manifest.counts, **(counts or {})}
            writer.parents = {
                **manifest.parents,
                "version": {"name": source, "hash": manifest.hash},
                **parents,
            }
            # A gate judged the older version, not this one.
            inherited = {name: value for name, value in manifest.parameters.items() if name != "gate"}
            writer.parameters = {**inherited, **parameters}
    except OSError as error:
        reason = error.strerror or str(error)
        raise BuildError(f"cannot write below {root.path}: {reason}; the live index is unchanged") from error
    return version


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
