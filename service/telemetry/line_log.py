"""A log that does not wait for the disk: lines go to a bounded queue, and a thread writes them.

A failed write is undone, logged once and counted; callers are not affected.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Counter

from glow.errors import ConfigError
from glow_service.telemetry.rotated_file import RotatedFile

__all__ = ["LineLog"]

MAX_WAITING = 4_096
"""Most waiting lines; further lines are lost and counted."""
WRITE_EVERY_S = 0.2
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class LineLog:
    """A file of lines that every worker appends to.

    Args:
        setting: the setting that named the file, for messages.
        lost: counts lost lines, by reason.
        path: the file.
        max_bytes: size at which the file is rotated.
        max_files: rotated files that are kept, >= 1.

    Raises:
        ConfigError: if the file cannot be written.
    """

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
        """Queues a line, or loses it if the queue is full; takes microseconds and never raises.

        Args:
            line: makes the line, with its line feed; called by the thread.
        """
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
