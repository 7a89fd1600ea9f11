"""Removes old versions and the remains of killed commands.

The live version and pinned ones stay, and those that a rollback left, until the next publication. Further ones stay up
to a given number: first the previously live ones, then the others, each newest first. A version that was never live
and is younger than an hour also stays. A version is first renamed, and then removed file by file.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glow.artifact import (
    CURRENT_FILE,
    MANIFEST_FILE,
    PINNED_FILE,
    REMOVED,
    WORK_FOLDER,
    IndexRoot,
    RootLock,
    discard,
    is_abandoned,
    is_temporary,
    set_aside,
    set_aside_abandoned,
)
from glow.errors import ArtifactNotFoundError, BusyError
from glow.index.milvus import collections_of, connect, drop_collection, release_collection

FRESH_S = 3600.0
"""How long a version that was never live waits for its build to publish it."""
SERVED = ("live", "fresh", "pinned")
"""Why a version stays that is served, or may be soon."""
_TEMPORARY_FILE = re.compile(
    rf"\.({CURRENT_FILE}|{PINNED_FILE}|{re.escape(MANIFEST_FILE)})-\d+-[0-9a-f]{{8}}"
)


@dataclass(frozen=True, slots=True)
class Collected:
    """What `gc` removed, or would remove."""

    removed: tuple[str, ...]  # versions, oldest name first
    kept: dict[str, str]  # version -> why it stays: `live`, `pinned`, `left`, `rollback`, `kept` or `fresh`
    leftovers: tuple[str, ...]  # names of directories and files that killed commands left
    freed_bytes: int  # bytes of their files that no other version shares
    dry_run: bool  # whether nothing was removed

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        return {"status": "collected", **asdict(self)}


def collect(
    root: IndexRoot,
    keep: int,  # versions to keep in addition to pinned and fresh ones, >= 1
    *,
    dry_run: bool = False,
    work: bool = False,
    now: float | None = None,  # seconds since the epoch; None: the present time
) -> Collected:
    """Removes versions beyond `keep`, and leftovers; if it is killed, the next call removes the rest."""
    if not root.path.is_dir():
        raise ArtifactNotFoundError(f"no index root at {root.path}; see --index-root")
    moment = time.time() if now is None else now
    if dry_run:
        return _look(root, keep, work, moment)
    with root.locked():
        collected = _look(root, keep, work, moment)
        _tend_collections(root, collected, moment)
        aside = [root.remove(version) for version in collected.removed]
        for path in _leftovers(root.path, moment):
            if path.name.startswith(REMOVED):
                aside.append(path)
            elif not path.is_dir():
                path.unlink(missing_ok=True)
            elif taken := set_aside_abandoned(path, moment):
                aside.append(taken)
        for path in _works(root.path, work):
            with suppress(BusyError), RootLock(path).hold(0.0):
                aside.append(set_aside(path, root.path))
    for path in aside:  # without the lock: no other command reads these names
        discard(path)
    return replace(collected, dry_run=False)


def _look(root: IndexRoot, keep: int, work: bool, now: float) -> Collected:
    reasons = _reasons(root, keep, now)
    removed = tuple(version for version in root.versions() if version not in reasons)
    leftovers = [*_leftovers(root.path, now)]
    for path in _works(root.path, work):
        with suppress(BusyError), RootLock(path).hold(0.0):
            leftovers.append(path)
    folders = [*(root.folder(version) for version in removed), *leftovers]
    names = tuple(sorted(path.relative_to(root.path).as_posix() for path in leftovers))
    return Collected(removed, reasons, names, sum(_own_bytes(folder) for folder in folders), dry_run=True)


def _tend_collections(root: IndexRoot, collected: Collected, now: float) -> None:
    """Removes the server's collections of removed versions, and unloads those of older versions that stay.

    A version with a delta uses its base's collection. Opening an older version loads it again. For an hour after a
    publication nothing is unloaded, as services may not have switched yet. Without the server, the versions stay.
    """
    collections = {version: collections_of(root.folder(version)) for version in root.versions()}
    remaining = {name for version in collected.kept for name in collections.get(version, {})}
    for version in collected.removed:
        for name, address in collections.get(version, {}).items():
            if name not in remaining:
                drop_collection(connect(address), name)
    if now - _changed(root.path / CURRENT_FILE) < FRESH_S:
        return
    served = {
        name for each, why in collected.kept.items() if why in SERVED for name in collections.get(each, {})
    }
    for version in collected.kept:
        for name, address in collections.get(version, {}).items():
            if name not in served:
                release_collection(connect(address), name)


def _reasons(root: IndexRoot, keep: int, now: float) -> dict[str, str]:
    """Version -> why it stays; the first cause counts."""
    live, before, versions = [each for each in (root.live(),) if each], root.history(), root.versions()
    rest = [version for version in reversed(versions) if version not in (*live, *before)]
    reasons = dict.fromkeys(live, "live")
    for version in [*live, *before, *rest][:keep]:
        reasons.setdefault(version, "rollback" if version in before else "kept")
    for version in root.rolled_back_from():  # it may be the newest data, and workers may still serve it
        reasons.setdefault(version, "left")
    for version in root.pinned(datetime.fromtimestamp(now, UTC)):
        reasons.setdefault(version, "pinned")
    for version in rest:
        if now - _changed(root.folder(version) / MANIFEST_FILE) < FRESH_S:
            reasons.setdefault(version, "fresh")
    return {version: reasons[version] for version in versions if version in reasons}


def _leftovers(root: Path, now: float) -> Iterator[Path]:
    """Temporary files and directories that no live process uses; removing them needs the lock."""
    for path in sorted(root.iterdir()):
        if is_temporary(path):
            if is_abandoned(path, now):
                yield path
        elif _TEMPORARY_FILE.fullmatch(path.name) and path.is_file():
            yield path  # they are written under the lock, so the writer of this one is dead


def _works(root: Path, included: bool) -> list[Path]:
    """The work directories of interrupted builds, if they are to be removed."""
    if not included or not (root / WORK_FOLDER).is_dir():
        return []
    return sorted(path for path in (root / WORK_FOLDER).iterdir() if path.is_dir())


def _changed(path: Path) -> float:
    """When a file was written, in seconds since the epoch; 0 if it is missing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _own_bytes(path: Path) -> int:
    """Bytes of the files below a path that have no other hard link; another command may be removing them."""
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    size = 0
    for file in [path] if path.is_file() else below:
        with suppress(FileNotFoundError):
            status = file.stat()
            size += status.st_size if status.st_nlink == 1 else 0
    return size
