"""A lock that allows one writer at a time on an index root; the kernel releases it if its holder dies."""

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
    """The lock of a folder: one thread of one process holds it at a time, and that thread may take it again.

    It uses `flock`, which ends with the process, and works on local disks and NFS 4.

    Args:
        folder: the folder; it is made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._inside = threading.RLock()
        self._depth = 0

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[None]:
        """Holds the lock for a block.

        Args:
            wait_s: how long to wait for another holder, in seconds, >= 0.

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
            with suppress(OSError):  # on a full disk the lock still works; only the holder's name is missing
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
    """The name that the holder wrote into the lock file."""
    return os.pread(descriptor, 256, 0).decode(errors="replace") or "another process"


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
