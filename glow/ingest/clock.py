"""The clock of the log: a number in a file, which every append and every reader locks and raises.

Clocks of hosts differ and may be set back. This one only goes forward, because each user locks the file (flock).
So a write that was sent after another one was acknowledged has the later time, on any two hosts.
"""

import fcntl
import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glow.errors import BusyError

__all__ = ["CLOCK_FILE", "LogBusyError", "LogClock"]

CLOCK_FILE = "clock"
"""Clock of the log, which orders the writes of all writers."""
LOCK_WAIT_S = 5.0
POLL_S = 0.0005
"""How long to wait for the lock, which one append holds without its sync."""
_LENGTH = 30
"""Bytes of the file: checksum, blank, 20 digits, line feed."""


class LogBusyError(BusyError):
    """Another process holds the lock of the write log, such as one that was stopped during a write."""

    code = "ingest_busy"


class LogClock:
    """The clock of one log directory; safe to use from many threads.

    Args:
        folder: the log's directory, created if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLOCK_FILE
        self._lock = threading.Lock()
        self._descriptor = -1

    @contextmanager
    def tick(self, after: int = 0) -> Iterator[int]:
        """Takes the next time; no other process can take one until the block ends.

        Args:
            after: a time that was already taken, in case the file was lost since.

        Yields:
            Nanoseconds since 1970 by this host's clock, or one more than the last time taken by any process.

        Raises:
            LogBusyError: if another process, such as a stopped one, keeps the lock for `LOCK_WAIT_S`.
            OSError: if the file cannot be created, locked or written.
        """
        with self._lock:
            self._take(time.monotonic() + LOCK_WAIT_S)
            try:
                at = max(time.time_ns(), self._read() + 1, after + 1)
                os.pwrite(self._descriptor, _line(at), 0)
                yield at
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; another `tick` would reopen it."""
        with self._lock:
            self._close()

    def _take(self, until: float) -> None:
        """Locks the file of this name, which may have been replaced since the last time."""
        while True:
            if self._descriptor < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            while not self._try():
                if time.monotonic() >= until:
                    raise LogBusyError(
                        f"{self._path} stays locked by another process that writes to this log; check whether one is stopped"
                    )
                time.sleep(POLL_S)
            try:
                if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                    return
            except FileNotFoundError:
                pass
            self._close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _read(self) -> int:
        """The last time taken; 0 if the file is new or damaged, since this host's clock is then a good estimate."""
        line = os.pread(self._descriptor, _LENGTH + 1, 0)
        checksum, _, digits = line.partition(b" ")
        digits = digits.strip()
        if not digits.isdigit() or checksum != b"%08x" % zlib.crc32(digits):
            return 0
        return int(digits)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _line(at: int) -> bytes:
    digits = b"%020d" % at
    return b"%08x %s\n" % (zlib.crc32(digits), digits)
