"""One writer at a time: a lock on an index root that the kernel gives back when its holder dies."""

import errno
import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glow.errors import BusyError, DiskError, ReadOnlyError

__all__ = ["LOCK_FILE", "RootLock", "disk_error"]

LOCK_FILE = ".lock"
"""Lock of the process that changes the index root."""
POLL_S = 0.05
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class RootLock:
    """The right to change a folder; one process has it at a time, and one thread of it may take it again inside.

    `flock` holds it: it ends with the process, however that ends, and works on local disks and NFS 4.

    Args:
        folder: the folder, made if need be.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._inside = threading.RLock()
        self._depth = 0

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[None]:
        """Holds the lock for a block.

        Args:
            wait_s: how long to wait for another holder, >= 0.

        Raises:
            BusyError: if another process still holds it; the message names that process.
            ReadOnlyError: if the folder cannot be written.
        """
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
            while not _try(descriptor):
                if time.monotonic() >= until:
                    raise BusyError(
                        f"{self._path.parent} is being changed by {_holder(descriptor)}; wait for it, then try again"
                    )
                time.sleep(POLL_S)
            with suppress(OSError):  # the lock holds on a full disk, too; only its holder's name is not there
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} ({_command()})".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    """What the holder wrote of itself; it may have died since, but then the lock is free."""
    return os.pread(descriptor, 256, 0).decode(errors="replace") or "another process"


def _command() -> str:
    """The command's name and verb, without its options, which may hold what is nobody's business."""
    words = [Path(sys.argv[0]).parent.name if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name]
    return " ".join(words + [word for word in sys.argv[1:2] if word.isalpha()])


def disk_error(folder: Path | str, error: OSError) -> DiskError | ReadOnlyError:
    """What a person hears whose folder, or file of that name, cannot be written, or whose disk is full."""
    reason = error.strerror or str(error)
    if error.errno in _UNWRITABLE:
        return ReadOnlyError(f"{folder} cannot be written ({reason}); run the command where it can be")
    return DiskError(
        f"cannot write below {folder}: {reason}; the live version is unchanged; make room (`glow gc`), then try again"
    )
