"""Removing old versions, and what killed commands left behind.

These stay always: the live version, the pinned ones, and those that a rollback left, until something new is published. Then, up
to a number, those that were live before stay, newest first, since a rollback goes there; then the others, newest first.
A version that was never live and is younger than an hour stays as well:
the build that made it may be about to publish it. A version is taken away by one rename, and only then removed file by file.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
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
from glow.index.milvus import (
    STORE_FILE,
    StoreHeader,
    connect,
    drop_collection,
    read_store_header,
    release_collection,
)

__all__ = ["Collected", "collect"]

FRESH_S = 3600.0
"""How long a version that was never live is left for its build to publish it."""
SERVED = ("live", "fresh", "pinned")
"""Reasons to stay of versions that are served, or may be in a moment."""
_TEMPORARY_FILE = re.compile(
    rf"\.({CURRENT_FILE}|{PINNED_FILE}|{re.escape(MANIFEST_FILE)})-\d+-[0-9a-f]{{8}}"
)


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would be.

    Attributes:
        removed: versions, oldest name first.
        kept: version -> why it stays: `live`, `pinned`, `left`, `rollback`, `kept` or `fresh`.
        leftovers: names of folders and files that killed commands left.
        freed_bytes: bytes of files that no other version shares, of the versions and folders.
        dry_run: nothing was removed.
    """

    removed: tuple[str, ...]
    kept: dict[str, str]
    leftovers: tuple[str, ...]
    freed_bytes: int
    dry_run: bool

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        return {"status": "collected", **asdict(self)}


def collect(
    root: IndexRoot, keep: int, *, dry_run: bool = False, work: bool = False, now: float | None = None
) -> Collected:
    """Removes versions beyond `keep`, and leftovers.

    Safe to kill: what is half removed has a name that nobody reads, and the next call removes the rest.

    Args:
        root: must be there.
        keep: versions that stay beside pinned and fresh ones, >= 1.
        dry_run: only says what it would do.
        work: removes interrupted builds that nobody works on, too, which then cannot go on.
        now: seconds since the epoch; None: the clock's.

    Raises:
        ArtifactError: if there is no root, or CURRENT or PINNED cannot be read: nothing is removed then.
        BusyError, ReadOnlyError: as `IndexRoot.publish`.
        StoreError: if the server that holds the vectors of such a version does not answer.
    """
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
        aside += [taken for path in _works(root.path, work) if (taken := _take_work(path, root.path))]
    for path in aside:  # the lock is free meanwhile: nobody looks at these names
        discard(path)
    return Collected(
        collected.removed, collected.kept, collected.leftovers, collected.freed_bytes, dry_run=False
    )


def _look(root: IndexRoot, keep: int, work: bool, now: float) -> Collected:
    kept = _kept(root, keep, now)
    removed = tuple(version for version in root.versions() if version not in kept)
    leftovers = [*_leftovers(root.path, now), *(path for path in _works(root.path, work) if _is_idle(path))]
    folders = [*(root.folder(version) for version in removed), *leftovers]
    names = tuple(sorted(path.relative_to(root.path).as_posix() for path in leftovers))
    return Collected(removed, kept, names, sum(_own_bytes(folder) for folder in folders), dry_run=True)


def _tend_collections(root: IndexRoot, collected: Collected, now: float) -> None:
    """Removes the collections of versions that go, and has the server unload those of older ones that stay.

    A version with a delta has the collection of its base: what a version that stays names is not removed, what the live one
    names is not unloaded. Whoever opens an older version has it loaded again. For an hour after a publication nothing is
    unloaded, because services may still follow. Where the server does not answer, the versions stay to say so.
    """
    held = {version: header for version in root.versions() if (header := _collection(root.folder(version)))}
    kept = {held[version].collection for version in collected.kept if version in held}
    going = {held[version].collection: held[version] for version in collected.removed if version in held}
    for name, header in going.items():
        if name not in kept:
            drop_collection(connect(header.address), header)
    if now - _changed(root.path / CURRENT_FILE) < FRESH_S:
        return
    served = {held[each].collection for each, why in collected.kept.items() if why in SERVED and each in held}
    for version in collected.kept:
        if version in held and held[version].collection not in served:
            release_collection(connect(held[version].address), held[version])


def _collection(version: Path) -> StoreHeader | None:
    """What says where the vectors of a version lie; None where that is its folder."""
    return read_store_header(version) if (version / STORE_FILE).is_file() else None


def _kept(root: IndexRoot, keep: int, now: float) -> dict[str, str]:
    """Version -> why it stays; the first reason counts."""
    live = [each for each in (root.live(),) if each]
    before = root.history()
    versions = root.versions()
    rest = [version for version in reversed(versions) if version not in (*live, *before)]
    kept = dict.fromkeys(live, "live")
    for version in [*live, *before, *rest][:keep]:
        kept.setdefault(version, "rollback" if version in before else "kept")
    for (
        version
    ) in root.rolled_back_from():  # it may be the newest data there is, and workers may still serve it
        kept.setdefault(version, "left")
    for version in root.pinned(datetime.fromtimestamp(now, UTC)):
        kept.setdefault(version, "pinned")
    for version in rest:
        if now - _made(root.folder(version)) < FRESH_S:
            kept.setdefault(version, "fresh")
    return {version: kept[version] for version in versions if version in kept}


def _leftovers(root: Path, now: float) -> Iterator[Path]:
    """Temporary files and folders that no live process works in; call it with the lock, or only look."""
    for path in sorted(root.iterdir()):
        if is_temporary(path):
            if is_abandoned(path, now):
                yield path
        elif _TEMPORARY_FILE.fullmatch(path.name) and path.is_file():
            yield path  # they are written with the lock, so whoever wrote this one is dead


def _works(root: Path, wanted: bool) -> list[Path]:
    """What interrupted builds have done so far, where that is to go as well; `glow_index_builder.building.work` keeps it."""
    if not wanted or not (root / WORK_FOLDER).is_dir():
        return []
    return sorted(path for path in (root / WORK_FOLDER).iterdir() if path.is_dir())


def _is_idle(work: Path) -> bool:
    """Whether no build works in a folder: it would hold its lock."""
    try:
        with RootLock(work).hold(0.0):
            return True
    except BusyError:
        return False


def _take_work(work: Path, root: Path) -> Path | None:
    """Sets a work folder aside, unless a build works in it."""
    try:
        with RootLock(work).hold(0.0):
            return set_aside(work, root)
    except BusyError:
        return None


def _made(folder: Path) -> float:
    """When a version was written whole, in seconds since the epoch; 0 where it is gone."""
    return _changed(folder / MANIFEST_FILE)


def _changed(path: Path) -> float:
    """When a file was written, in seconds since the epoch; 0 where it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _own_bytes(path: Path) -> int:
    """Bytes of the files below a path that nothing else links to."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    sizes = [file.stat() for file in files]
    return sum(size.st_size for size in sizes if size.st_nlink == 1)
