"""Lines that are put into a log without waiting for a disk: a bounded line of them, which a thread writes.

A write that fails is undone, told once and counted; whoever put the lines there never learns of it.
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
"""Lines that may wait to be written; more are lost, and counted."""
WRITE_EVERY_S = 0.2
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class LineLog:
    """A file of lines that every worker appends to.

    Args:
        setting: that named the file, for messages.
        lost: counts lines that could not be taken, by reason.
        path: the file.
        max_bytes: size at which it is rotated.
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
                "name a file in a folder that exists and that the service may write to"
            ) from error
        self._thread = threading.Thread(target=self._run, name=flag_of(setting), daemon=True)
        self._thread.start()

    def put(self, line: Callable[[], bytes]) -> None:
        """Takes a line, if there is room; some microseconds, and no failure.

        Args:
            line: makes it, with its end; called by the thread.
        """
        if len(self._waiting) >= MAX_WAITING:
            self._lost.labels("queue_full").inc()
            return
        self._waiting.append(line)

    def close(self) -> None:
        """Writes what waits, and closes the file; returns within seconds also where the disk does not."""
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
            except Exception:  # whatever it is: one line is lost, and the thread goes on
                self._lost.labels("not_json").inc()
        if not lines:
            return
        try:
            self._file.write(lines)
            self._is_failing = False
        except OSError as error:
            self._lost.labels("not_written").inc(len(lines))
            if not self._is_failing:  # once for each time that it begins to fail
                name = self._setting.replace("_", " ")
                _logger.error("the %s cannot be written; lines are lost until it can: %s", name, error)
            self._is_failing = True


def flag_of(setting: str) -> str:
    """A setting's flag, without its dashes."""
    return setting.replace("_", "-")
