"""Logs: on stderr, and files of lines that do not make their callers wait for the disk."""

import fcntl
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from prometheus_client import Counter

from glow.errors import ConfigError
from glow.query_log import numbered
from glow.storage import append_whole, end_last_line

LogForm = Literal["auto", "json", "text"]


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, then `extra={"fields": {…}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as JSON; values of other types become strings."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except orjson.JSONEncodeError:  # such as a lone surrogate in a message
            return orjson.dumps({key: ascii(value) for key, value in line.items()}).decode()


class TextFormatter(logging.Formatter):
    """A line of text: local time of day, level except info, message, then the fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as text; control characters, which a terminal would obey, are escaped."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        fields = "".join(f"  {name}={value}" for name, value in getattr(record, "fields", {}).items())
        text = f"{level}{record.getMessage()}{fields}"
        line = f"{moment}  " + "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str, form: LogForm = "json") -> None:
    """Sends all logs of the process, including uvicorn's, to stderr."""
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    # In text, leave out uvicorn's lines about stages of startup and shutdown.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING if is_text else logging.NOTSET)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their info and debug lines are not useful here.
    for name in ("asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


# A file of lines to which several processes append, and which is renamed when it is full. Each write holds an
# exclusive lock (flock) of the file, so lines of several processes never mix, and only one process rotates at a time.
# After locking, a process checks that the file still has its name: another process, or `logrotate`, may have renamed
# it.


class RotatedFile:
    """The file; the first write opens it."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._fd = -1

    def write(self, lines: list[bytes]) -> None:
        """Appends lines, and removes each from the list once it is written."""
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


# A log that does not wait for the disk: lines go to a bounded queue, and a thread writes them. A failed write is
# undone, logged once and counted; callers are not affected.

MAX_WAITING = 4_096
"""Most waiting lines; further lines are lost and counted."""
WRITE_EVERY_S = 0.2
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class LineLog:
    """A file of lines that every worker appends to."""

    def __init__(self, setting: str, lost: Counter, path: Path, max_bytes: int, max_files: int) -> None:
        self._setting, self._lost = setting, lost
        self._waiting: deque[Callable[[], bytes]] = deque()
        self._stop = threading.Event()
        self._is_failing = False
        self._file = RotatedFile(path, max_bytes, max_files)
        try:
            self._file.write([])
        except OSError as error:
            raise ConfigError(
                f"--{flag_of(setting)} (GLOW_{setting.upper()}): cannot write to {path}: {error.strerror}; "
                "name a file in an existing folder to which the service can write"
            ) from error
        self._thread = threading.Thread(target=self._run, name=flag_of(setting), daemon=True)
        self._thread.start()

    def put(self, line: Callable[[], bytes]) -> None:
        """Queues a line, or loses it if the queue is full; takes microseconds and never raises."""
        if len(self._waiting) >= MAX_WAITING:
            self._lost.labels("queue_full").inc()
            return
        self._waiting.append(line)

    def close(self) -> None:
        """Writes waiting lines, and closes the file; returns within seconds even if the disk hangs."""
        self._stop.set()
        self._thread.join(CLOSE_WITHIN_S)
        if not self._thread.is_alive():
            self._file.close()

    def _run(self) -> None:
        while not self._stop.wait(WRITE_EVERY_S):
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        lines = []
        for _ in range(len(self._waiting)):
            try:
                lines.append(self._waiting.popleft()())
            except Exception:  # any error: one line is lost, and the thread continues
                self._lost.labels("not_json").inc()
        if not lines:
            return
        try:
            self._file.write(lines)
            self._is_failing = False
        except OSError as error:
            self._lost.labels("not_written").inc(len(lines))
            if not self._is_failing:  # log only the first of consecutive failures
                name = self._setting.replace("_", " ")
                _logger.error("cannot write the %s; lines are lost until it works again: %s", name, error)
            self._is_failing = True


def flag_of(setting: str) -> str:
    """A setting's flag, without its dashes."""
    return setting.replace("_", "-")
