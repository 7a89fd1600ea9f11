"""Logs: on stderr, and files of JSON Lines, one per worker, whose writers do not wait for the disk."""

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from logging.handlers import RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import orjson
from prometheus_client import Counter

from glow.errors import ConfigError
from glow.query_log import worker_log
from glow.storage import end_last_line

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


# A log of JSON Lines. A queue passes each line to a thread that writes it, so no request waits for the disk.

MAX_BYTES = 64 << 20
"""Size at which a file is renamed, in bytes."""
MAX_FILES = 4
"""Renamed files that each worker keeps."""
MAX_WAITING = 4_096
"""Most waiting lines; further lines are lost and counted."""
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class LineLog:
    """A log with one file per worker: the first worker writes to `path`, the others to `worker_log`'s."""

    def __init__(self, setting: str, lost: Counter, path: Path) -> None:
        self._lost = lost
        try:
            path, self._lock = _claim(path)
            self._file = _LineFile(path, setting.replace("_", " "), lost)
        except OSError as error:
            raise ConfigError(
                f"--{setting.replace('_', '-')} (GLOW_{setting.upper()}): cannot write to {path}: {error.strerror}; "
                "name a file in an existing folder to which the service can write"
            ) from error
        self._waiting: SimpleQueue[Callable[[], bytes] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def put(self, line: Callable[[], bytes]) -> None:
        """Queues a line, which the thread makes, or loses it if the queue is full; takes microseconds."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._lost.labels("queue_full").inc()
        else:
            self._waiting.put(line)

    def close(self) -> None:
        """Writes waiting lines, and closes the file; returns within seconds even if the disk hangs."""
        self._waiting.put(None)
        self._thread.join(CLOSE_WITHIN_S)
        # The process's exit, which closes all handlers, must not wait for it either.
        if self._thread.is_alive():
            self._file.stream = None
            self._file.createLock()
        self._file.close()
        os.close(self._lock)

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                text = line().decode()
            except Exception:  # any error costs only this line
                self._lost.labels("not_json").inc()
            else:
                self._file.handle(logging.makeLogRecord({"msg": text}))


class _LineFile(RotatingFileHandler):
    def __init__(self, path: Path, label: str, lost: Counter) -> None:
        self._label, self._lost, self._has_failed, self._is_failing = label, lost, False, False
        _prepare(path)
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=MAX_FILES, encoding="utf-8")
        self.rotator = _rotate

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line; opens the file again after an error, or if somebody renamed or removed it."""
        if self._is_failing or not Path(self.baseFilename).exists():
            with suppress(OSError):
                self.close()
                _prepare(self.baseFilename)
        self._has_failed = False
        super().emit(record)
        self._is_failing = self._has_failed

    def handleError(self, record: logging.LogRecord) -> None:
        """Counts a line that could not be written; logs only the first of consecutive errors."""
        self._has_failed = True
        self._lost.labels("not_written").inc()
        if not self._is_failing:
            error = sys.exc_info()[1]
            _logger.error("cannot write the %s; lines are lost until it works again: %s", self._label, error)
        with suppress(OSError):
            self.close()  # drops the rest of the line; the next one opens the file


def _prepare(path: str | Path) -> None:
    """Makes a missing file, for the service's user only: queries are personal data. Ends a half line of a crash."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end_last_line(descriptor)
    finally:
        os.close(descriptor)


def _rotate(full: str, older: str) -> None:
    Path(full).replace(older)
    _prepare(full)


def _claim(path: Path) -> tuple[Path, int]:
    """The first file that no other worker writes to, and the descriptor whose lock says so."""
    for number in count(1):
        log = worker_log(path, number)
        lock = os.open(log.with_name(f".{log.name}.worker"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return log, lock
    raise AssertionError
