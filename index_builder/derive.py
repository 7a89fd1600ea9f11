"""A new version from an older one: the same files, and some more.

Versions never change, so what is added makes a version of its own. Files that stay are hard links to the older version's
where the disk can do that, so they take no more room, and removing either version leaves the other whole.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from glow.artifact import IndexRoot, read_manifest, write_artifact
from glow.errors import BuildError

__all__ = ["derive"]


def derive(
    root: IndexRoot,
    source: str,
    parents: Mapping[str, object],
    parameters: Mapping[str, object],
    add: Callable[[Path], None],
) -> str:
    """Makes a version with the files of another.

    Args:
        root: where both lie.
        source: the older version, which was verified before.
        parents, parameters: added to those in the manifest of the older one.
        add: writes files into the new folder; a file that is there already may be replaced, not changed.

    Returns:
        The new version's name.

    Raises:
        ArtifactError: the older version has no readable manifest.
        BuildError: the disk cannot hold the new one.
    """
    folder = root.folder(source)
    manifest = read_manifest(folder, "index")
    version = root.new_version()
    try:
        with write_artifact(root.folder(version), "index") as writer:
            for name in manifest.files:
                _link(folder / name, writer.folder / name)
            add(writer.folder)
            writer.hashes, writer.counts = manifest.hashes, manifest.counts
            writer.parents = {
                **manifest.parents,
                "version": {"name": source, "hash": manifest.hash},
                **parents,
            }
            writer.parameters = {**manifest.parameters, **parameters}
    except OSError as error:
        reason = error.strerror or str(error)
        raise BuildError(f"cannot write below {root.path}: {reason}; the live index is unchanged") from error
    return version


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
