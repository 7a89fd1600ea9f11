"""Temporary folders: hidden by name, and locked, so that cleanup can tell work in progress from remains of a kill.

The lock is `flock` on the folder itself: it needs no file, survives a rename, and ends with the process. If the
file system cannot lock folders (some network ones), a folder without changes for a day counts as abandoned.
"""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "REMOVED", "discard", "folder_for", "is_abandoned", "is_temporary", "set_aside", "set_aside_abandoned",
]  # fmt: skip

REMOVED = ".removed-"
"""Prefix of the name of a folder that is being removed."""
SILENCE_S = 24 * 3600.0
_MAKING = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]*-[a-z0-9_]{8}")  # `mkdtemp` appends eight such characters


@contextmanager
def folder_for(target: Path) -> Iterator[Path]:
    """Yields an empty folder next to `target`, to be renamed to it; if it was not renamed, it is removed.

    Args:
        target: the final folder; its parents are made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder, descriptor = _claimed(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    """Whether a path is a temporary folder, or one that is being removed."""
    named = path.name.startswith(REMOVED) or _MAKING.fullmatch(path.name) is not None
    return named and path.is_dir() and not path.is_symlink()


def is_abandoned(folder: Path, now: float | None = None) -> bool:
    """Whether no live process uses a folder.

    Args:
        folder: a temporary folder; a missing one counts as abandoned.
        now: seconds since the epoch; None: the current time.
    """
    with _idle(folder, now) as idle:
        return idle


def set_aside_abandoned(folder: Path, now: float | None = None) -> Path | None:
    """Like `set_aside`, unless a live process uses the folder; same arguments as `is_abandoned`."""
    # A process that is about to start waits for the lock, then finds the folder missing.
    with _idle(folder, now) as idle:
        try:
            return set_aside(folder) if idle else None
        except FileNotFoundError:
            return None


@contextmanager
def _idle(folder: Path, now: float | None) -> Iterator[bool]:
    """Whether no live process uses a folder; during the block, none can start to use it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield True
        return
    try:
        yield _is_free(descriptor, folder, time.time() if now is None else now)
    finally:
        os.close(descriptor)


def _is_free(descriptor: int, folder: Path, now: float) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that cannot lock folders
        return now - _last_change(folder) > SILENCE_S
    return True


def set_aside(folder: Path, parent: Path | None = None) -> Path:
    """Atomically renames a folder to a hidden name, for `discard`, which may be slow.

    Args:
        folder: folder to remove.
        parent: parent of the new name; None: the same parent.
    """
    aside = (parent or folder.parent) / f"{REMOVED}{folder.name.lstrip('.')[:100]}-{secrets.token_hex(4)}"
    folder.rename(aside)
    return aside


def discard(aside: Path) -> None:
    """Removes a folder that was set aside; two processes may do so at once. Errors are ignored."""
    shutil.rmtree(aside, ignore_errors=True)


def _claimed(target: Path) -> tuple[Path, int]:
    """Makes a folder and locks it; tries again if a cleanup removed it before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # a file system that cannot lock folders
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.is_dir():
                folder.chmod(
                    0o755
                )  # mkdtemp makes it private, but a service may run as a different user than the builder
                return folder, descriptor
            os.close(descriptor)


def _last_change(folder: Path) -> float:
    """Time of the last change in a folder, in seconds since the epoch."""
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            latest = max(latest, path.stat().st_mtime)
    return latest
