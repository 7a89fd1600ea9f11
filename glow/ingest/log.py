"""Appending to the log: an operation is accepted once its line is on disk."""

import os
import secrets
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glow.artifact import disk_error
from glow.errors import GlowError
from glow.ingest.clock import LogClock
from glow.ingest.reader import LOG_FOLDER, waiting_bytes
from glow.ingest.records import Kind, OperationId, to_content, to_line
from glow.ingest.tail import latest_time
from glow.storage import append_whole

__all__ = ["INGEST_FOLDER", "IngestLog", "LogFullError"]

INGEST_FOLDER = ".ingest"
"""Write log in an index root, unless `ingest_folder` names another directory."""
MOST_FILE_BYTES = 16 << 20
MOST_FILE_IDLE_S = 3600.0
"""A file that is larger, or was not written to for longer, is ended: once applied it may be removed (`remove_applied`), which must
never happen to one that is written to."""


class LogFullError(GlowError):
    """Too many writes wait to be applied. Retry later."""

    code = "ingest_full"


class IngestLog:
    """The log of one process; safe to use from many threads.

    Args:
        folder: `.ingest` of an index root.
        most_bytes: that may wait in it, of all writers together.

    Attributes:
        writer: names this process, and its present file, in ids of operations.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._clock = LogClock(folder)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._number = self._last_at = self._written = 0
        self._begin_afresh()

    def append(self, kind: Kind, **content: Any) -> OperationId:
        """Writes an operation; when this returns, it outlives this process and its machine.

        It comes behind every operation that was acknowledged before this call, on whichever host (`LogClock`).

        Args:
            kind: what is to be done.
            content: `documents`, `ids`, or `filter` and `all` of `Operation`.

        Raises:
            LogFullError: if too much waits.
            DiskError: if the disk is full or fails; the operation was not accepted.
            ReadOnlyError: if the root cannot be written.
            LogBusyError: if a process that is stopped keeps the log locked.
        """
        encoded = to_content(kind, content)
        with self._lock:
            if self._written > MOST_FILE_BYTES or self._is_idle():
                self._begin_afresh()
            try:
                number = self._write(encoded)
                self._sync()
            except OSError as error:
                # Without the folder's path, which is the server's own business: a client reads this.
                raise disk_error("the log of writes", error) from error
            return OperationId(self.writer, number)

    def close(self) -> None:
        """Ends the file."""
        with self._lock:
            self._close()
        self._clock.close()

    def _write(self, content: bytes) -> int:
        """Appends the line; no other writer can, meanwhile, so that what waits never exceeds its bound."""
        number = self._number + 1
        # After a power cut the clock may be older than what was written by it.
        after = self._last_at or latest_time(self._folder / LOG_FOLDER)
        with self._clock.tick(after) as at:
            line = to_line(self.writer, number, at, content)
            self._require_room(len(line))
            try:
                self._open()
                append_whole(self._descriptor, line)
            except OSError:
                self._remove_if_empty()
                raise
        self._number, self._last_at = number, at
        self._written += len(line)
        self._last_write = _moments()
        return number

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError:
            # The line may be on disk or not, and nobody is told that it is: it stays, and the next file begins afresh.
            self._begin_afresh()
            raise

    def _require_room(self, more: int) -> None:
        waiting = waiting_bytes(self._folder)
        if waiting + more > self._most_bytes:
            raise LogFullError(
                f"{waiting} bytes wait to be applied, at most {self._most_bytes} may; see that `glow ingest` runs, "
                "and try again later"
            )

    def _open(self) -> None:
        """Makes the file, once there is a line for it; called with the clock's lock, so that nobody removes it meanwhile."""
        if self._descriptor >= 0:
            return
        folder = self._folder / LOG_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"{self.writer}.log", flags, 0o644)
        for each in (folder, self._folder, self._folder.parent):
            _sync_folder(each)

    def _is_idle(self) -> bool:
        """Whether the file may have been removed meanwhile, by any clock: one does not count while a machine sleeps, one is set back."""
        return any(
            now - last > MOST_FILE_IDLE_S * 1e9
            for now, last in zip(_moments(), self._last_write, strict=True)
        )

    def _remove_if_empty(self) -> None:
        if not self._number and self._descriptor >= 0:
            self._close()
            (self._folder / LOG_FOLDER / f"{self.writer}.log").unlink()

    def _begin_afresh(self) -> None:
        """Ends the file; the next operation is the first of another one, under another name."""
        self._close()
        self.writer = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self._number = self._last_at = self._written = 0
        self._last_write = _moments()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _moments() -> tuple[int, int]:
    """Now, by the clock that is set and by the one that only runs, in nanoseconds."""
    return time.time_ns(), time.monotonic_ns()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
