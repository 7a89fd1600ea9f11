"""Folders in the making: under a name that nobody reads, and locked, so that cleaning up tells work from what a kill left.

The lock is `flock` on the folder itself: it needs no file, goes with the folder through a rename, and ends with the
process, however that ends. Where a file system cannot lock folders (some network ones), a day of silence counts as death.
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
"""Begins the name of what is being removed."""
SILENCE_S = 24 * 3600.0
_MAKING = re.compile(
    r"\.[A-Za-z0-9][A-Za-z0-9._-]*-[a-z0-9_]{8}"
)  # `mkdtemp` ends names in eight such characters


@contextmanager
def folder_for(target: Path) -> Iterator[Path]:
    """An empty folder beside `target` that may be renamed to it; what is there at the end under its old name is removed.

    Args:
        target: the folder to be; those above it are made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder, descriptor = _claimed(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    """Whether a path is named as a folder in the making, or as one that is being removed."""
    named = path.name.startswith(REMOVED) or _MAKING.fullmatch(path.name) is not None
    return named and path.is_dir() and not path.is_symlink()


def is_abandoned(folder: Path, now: float | None = None) -> bool:
    """Whether no live process is at work in a folder.

    Args:
        folder: may be gone, which nobody is at work in.
        now: seconds since the epoch; None: the clock's.
    """
    with _idle(folder, now) as idle:
        return idle


def set_aside_abandoned(folder: Path, now: float | None = None) -> Path | None:
    """As `set_aside`, unless a live process is at work in the folder; arguments as `is_abandoned`."""
    with _idle(
        folder, now
    ) as idle:  # who is about to begin waits for the lock, and then finds the folder gone
        try:
            return set_aside(folder) if idle else None
        except FileNotFoundError:
            return None


@contextmanager
def _idle(folder: Path, now: float | None) -> Iterator[bool]:
    """Whether no live process is at work in a folder; while the block runs, none begins to be."""
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
    """Renames a folder in one step to a name that nobody reads, for `discard`, which may take its time.

    Args:
        folder: what goes.
        parent: where its new name is; None: beside it.
    """
    aside = (parent or folder.parent) / f"{REMOVED}{folder.name.lstrip('.')[:100]}-{secrets.token_hex(4)}"
    folder.rename(aside)
    return aside


def discard(aside: Path) -> None:
    """Removes what was set aside; two processes may do it at once, and what one cannot remove stays for the next."""
    shutil.rmtree(aside, ignore_errors=True)


def _claimed(target: Path) -> tuple[Path, int]:
    """A new folder, and its lock; another one where somebody cleaned it up before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # a file system that cannot lock folders
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.is_dir():
                folder.chmod(
                    0o755
                )  # mkdtemp makes it private, but a service runs as another user than the builder
                return folder, descriptor
            os.close(descriptor)


def _last_change(folder: Path) -> float:
    """When anything in a folder was last written, in seconds since the epoch."""
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            latest = max(latest, path.stat().st_mtime)
    return latest
