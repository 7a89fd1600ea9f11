"""Appending to the log: an operation is accepted once its line is on disk."""

import os
import secrets
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from glow.artifact import disk_error
from glow.errors import GlowError
from glow.ingest.reader import LOG_FOLDER, waiting_bytes
from glow.ingest.records import Kind, Operation, OperationId, to_line

__all__ = ["INGEST_FOLDER", "IngestLog", "LogFullError"]

INGEST_FOLDER = ".ingest"
"""Folder of an index root with what was written and is not in the index yet, unless another one is named."""
MOST_FILE_BYTES = 16 << 20
MOST_FILE_IDLE_S = 3600.0
"""A file that is larger, or was not written to for longer, is ended: once applied it may be removed (`remove_applied`), which must
never happen to one that is written to."""
LOOK_S = 0.5
"""How long the size of what waits counts; other writers' part of it changes, too."""


class LogFullError(GlowError):
    """As many writes wait as may; what was accepted is applied first."""

    code = "ingest_full"


class IngestLog:
    """The log of one process; safe to use from many threads.

    Args:
        root: the index root.
        most_bytes: that may wait in it, of all writers together.

    Attributes:
        writer: names this process, and its present file, in ids of operations.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self.writer = _new_name()
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._number = self._last_at = self._written = 0
        self._waiting, self._looked = 0, float("-inf")
        self._is_broken = False

    def append(self, kind: Kind, **content: Any) -> OperationId:
        """Writes an operation; when this returns, it outlives this process and its machine.

        Args:
            kind: what is to be done.
            content: `documents`, `ids` or `filter` of `Operation`.

        Raises:
            LogFullError: if too much waits.
            DiskError: if the disk is full or fails; the operation was not accepted.
            ReadOnlyError: if the root cannot be written.
        """
        with self._lock:
            if self._written > MOST_FILE_BYTES or time.time_ns() - self._last_at > MOST_FILE_IDLE_S * 1e9:
                self._begin_afresh()
            number = self._number + 1
            at = max(time.time_ns(), self._last_at + 1)
            line = to_line(Operation(number=number, at=at, kind=kind, **content))
            self._require_room(len(line))
            try:
                self._write(line)
            except OSError as error:
                # What came to lie there is no whole line, or one that nobody was told of: the next file begins afresh.
                self._begin_afresh()
                raise disk_error(self._folder, error) from error
            accepted = OperationId(self.writer, number)
            self._number, self._last_at = number, at
            self._waiting += len(line)
            self._written += len(line)
        return accepted

    def close(self) -> None:
        """Ends the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _require_room(self, more: int) -> None:
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            self._waiting, self._looked = waiting_bytes(self._folder), now
        if self._waiting + more > self._most_bytes:
            raise LogFullError(
                f"{self._waiting} bytes wait to be applied, at most {self._most_bytes} may; see that `glow ingest` runs, "
                "and try again later"
            )

    def _write(self, line: bytes) -> None:
        if self._file is None:
            folder = self._folder / LOG_FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{self.writer}.log").open("xb", buffering=0)
            for each in (folder, self._folder, self._folder.parent):
                _sync_folder(each)
        written = 0
        while written < len(line):
            written += self._file.write(line[written:]) or 0
        os.fsync(self._file.fileno())

    def _begin_afresh(self) -> None:
        """Ends the file; the next operation is the first of another one, under another name."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.writer = _new_name()
        self._number = self._written = 0


def _new_name() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
