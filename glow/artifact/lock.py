"""Locks and temporary folders: one writer at a time on an index root, and cleanup that spares work in progress.

Temporary folders are hidden by name, and locked, so that cleanup can tell work in progress from remains of a kill. The
lock is `flock` on the folder itself: it needs no file, survives a rename, and ends with the process. If the file
system cannot lock folders (some network ones), a folder without changes for a day counts as abandoned.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glow.errors import BusyError, DiskError, ReadOnlyError

LOCK_FILE = ".lock"
"""Lock of the process that changes the index root."""
POLL_S = 0.05
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class RootLock:
    """The lock of a folder: one thread of one process holds it at a time, and that thread may take it again.

    It uses `flock`, which ends with the process, and works on local disks and NFS 4.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._inside = threading.RLock()
        self._depth = 0

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[None]:
        """Holds the lock for a block; waits for another holder at most this long, >= 0."""
        with self._inside:
            if self._depth:
                yield
                return
            descriptor = self._take(time.monotonic() + wait_s)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                os.close(descriptor)

    def _take(self, until: float) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(self._path.parent, error) from error
        try:
            while not try_lock(descriptor):
                if time.monotonic() >= until:
                    holder = os.pread(descriptor, 256, 0).decode(errors="replace") or "another process"
                    raise BusyError(
                        f"{self._path.parent} is being changed by {holder}; wait for it, then try again"
                    )
                time.sleep(POLL_S)
            with suppress(OSError):  # on a full disk the lock still works; only the holder's name is missing
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} ({_command()})".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def try_lock(descriptor: int) -> bool:
    """Locks an open file or folder, unless another process has; returns whether it did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _command() -> str:
    """The program's and command's name, without options, which may contain private data."""
    words = [Path(sys.argv[0]).parent.name if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name]
    return " ".join(words + [word for word in sys.argv[1:2] if word.isalpha()])


def disk_error(folder: Path | str, error: OSError) -> DiskError | ReadOnlyError:
    """The error for a folder or file that cannot be written, or for a full disk."""
    reason = error.strerror or str(error)
    if error.errno in _UNWRITABLE:
        return ReadOnlyError(f"{folder} cannot be written ({reason}); run the command with write access")
    return DiskError(
        f"cannot write below {folder}: {reason}; the live version is unchanged; free disk space (`glow gc`), then try again"
    )


REMOVED = ".removed-"
"""Prefix of the name of a folder that is being removed."""
SILENCE_S = 24 * 3600.0
_MAKING = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]*-[a-z0-9_]{8}")  # `mkdtemp` appends eight such characters


@contextmanager
def folder_for(target: Path) -> Iterator[Path]:
    """Yields an empty folder next to `target`, to be renamed to it; if it was not renamed, it is removed."""
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
    """Whether no live process uses a folder; `now` is in seconds since the epoch, None the current time."""
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
        try:
            is_free = try_lock(descriptor)
        except OSError:  # a file system that cannot lock folders
            is_free = (time.time() if now is None else now) - _last_change(folder) > SILENCE_S
        yield is_free
    finally:
        os.close(descriptor)


def set_aside(folder: Path, parent: Path | None = None) -> Path:
    """Atomically renames a folder to a hidden name beside it, or in `parent`, for `discard`, which may be slow."""
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
                # mkdtemp makes it private, but a service may run as a different user than the builder.
                folder.chmod(0o755)
                return folder, descriptor
            os.close(descriptor)


def _last_change(folder: Path) -> float:
    """Time of the last change in a folder, in seconds since the epoch."""
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            latest = max(latest, path.stat().st_mtime)
    return latest
