"""Appending to the log: an operation is accepted once its line is on disk."""

import os
import secrets
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glow.artifact import disk_error, sync
from glow.errors import GlowError
from glow.ingest.reader import LOG_FOLDER, waiting_bytes
from glow.ingest.records import Kind, LogClock, OperationId, latest_time, to_content, to_line
from glow.storage import append_whole

INGEST_FOLDER = ".ingest"
"""Write log in an index root, unless `ingest_folder` names another directory."""
MOST_FILE_BYTES = 16 << 20
MOST_FILE_IDLE_S = 3600.0
"""A file ends when it exceeds this size or was idle for this long. Once applied, an ended file may be removed
(`remove_applied`), but never one that is still written to."""


class LogFullError(GlowError, code="ingest_full"):
    """Too many writes wait to be applied. Retry later."""


class IngestLog:
    """The log of one process; safe to use from many threads."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes  # limit of the bytes that wait in it, over all writers
        self._clock = LogClock(folder)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._number = self._last_at = self._written = 0
        self._begin_afresh()

    def append(self, kind: Kind, **content: Any) -> OperationId:
        """Writes an operation; when this returns, the operation survives a crash of the process and of its machine.

        It follows every operation that was acknowledged before this call, on any host (`LogClock`).
        """
        encoded = to_content(kind, content)
        with self._lock:
            if self._written > MOST_FILE_BYTES or self._is_idle():
                self._begin_afresh()
            try:
                number = self._write(encoded)
                self._sync()
            except OSError as error:
                # Without the directory's path, which clients must not see.
                raise disk_error("the log of writes", error) from error
            return OperationId(self.writer, number)

    def close(self) -> None:
        with self._lock:
            self._close()
        self._clock.close()

    def _write(self, content: bytes) -> int:
        """Appends the line while no other writer can, so that what waits never exceeds its limit."""
        number = self._number + 1
        # After a power cut, the clock may be older than its last write.
        after = self._last_at or latest_time(self._folder / LOG_FOLDER)
        with self._clock.tick(after) as at:
            line = to_line(self.writer, number, at, content)
            waiting = waiting_bytes(self._folder)
            if waiting + len(line) > self._most_bytes:
                raise LogFullError(
                    f"{waiting} bytes wait to be applied (limit: {self._most_bytes}); check that `glow ingest` runs, "
                    "and retry later"
                )
            try:
                self._open()
                append_whole(self._descriptor, line)
            except OSError:
                if not self._number and self._descriptor >= 0:
                    self._close()
                    (self._folder / LOG_FOLDER / f"{self.writer}.log").unlink()
                raise
        self._number, self._last_at = number, at
        self._written += len(line)
        self._last_write = _moments()
        return number

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError:
            # The line may or may not be on disk, and is not acknowledged: it stays, and the next file begins afresh.
            self._begin_afresh()
            raise

    def _open(self) -> None:
        """Creates the file for its first line; called with the clock's lock, so that no process removes it meanwhile."""
        if self._descriptor >= 0:
            return
        folder = self._folder / LOG_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"{self.writer}.log", flags, 0o644)
        for each in (folder, self._folder, self._folder.parent):
            sync(each)

    def _is_idle(self) -> bool:
        """Whether the file may have been removed meanwhile, by either clock: one stops while a machine sleeps, one can be set back."""
        return any(
            now - last > MOST_FILE_IDLE_S * 1e9
            for now, last in zip(_moments(), self._last_write, strict=True)
        )

    def _begin_afresh(self) -> None:
        """Ends the file; the next operation is the first of a new file with another name."""
        self._close()
        self.writer = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self._number = self._last_at = self._written = 0
        self._last_write = _moments()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _moments() -> tuple[int, int]:
    """Now, by the wall clock and by the monotonic clock, in nanoseconds."""
    return time.time_ns(), time.monotonic_ns()
