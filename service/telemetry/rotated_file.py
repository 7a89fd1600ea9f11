"""A file of lines to which several processes append, and which is renamed when it is full.

Each write holds an exclusive lock (flock) of the file, so lines of several processes never mix, and only one process
rotates at a time. After locking, a process checks that the file still has its name: another process, or `logrotate`,
may have renamed it.
"""

import fcntl
import os
from pathlib import Path

from glow.query_log import numbered
from glow.storage import append_whole, end_last_line

__all__ = ["RotatedFile"]


class RotatedFile:
    """The file; the first write opens it.

    Args:
        path: path of the file; full files are renamed to `path.1`, `path.2` and so on, the oldest last.
        max_bytes: largest size; a longer line gets a separate file.
        keep: number of full files to keep.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._fd = -1

    def write(self, lines: list[bytes]) -> None:
        """Appends lines, and removes each from the list once it is written.

        Raises:
            OSError: if writing failed; the lines still in the list were not written.
        """
        self._lock()
        try:
            end_last_line(self._fd)
            while lines:
                size = os.fstat(self._fd).st_size
                count = _fitting(lines, self._max_bytes - size)
                if not count and size:
                    self._rotate()
                    continue
                append_whole(self._fd, b"".join(lines[: max(count, 1)]))
                del lines[: max(count, 1)]
        finally:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; a later write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lock(self) -> None:
        """Locks the file with this name, which may have been replaced since the last time."""
        while True:
            if self._fd < 0:
                # Queries are personal data: only the service's user may read them.
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                status = self._path.stat()
                if os.path.samestat(status, os.fstat(self._fd)):
                    return
            except FileNotFoundError:
                pass
            self.close()

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            older = numbered(self._path, number)
            if older.exists():
                older.replace(numbered(self._path, number + 1))
        self._path.replace(numbered(self._path, 1))
        self._lock()


def _fitting(lines: list[bytes], room_bytes: int) -> int:
    """Number of the first lines that fit."""
    for count, line in enumerate(lines):
        room_bytes -= len(line)
        if room_bytes < 0:
            return count
    return len(lines)
