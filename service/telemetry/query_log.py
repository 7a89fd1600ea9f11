"""The query log: a sample of the searches as JSON lines, in one file that every worker appends to.

`QueryLog.log` only puts a query into a bounded line; a thread writes what stands there a few times a second. A write
that fails is undone, logged once and counted; searches never learn of it. It is off unless `query_log` names a file:
queries are personal data.
"""

import logging
import threading
import time
import zlib
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from glow.errors import ConfigError
from glow.query_log import LoggedQuery
from glow_service.fragment import ResultFragment
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.rotated_file import RotatedFile

__all__ = ["QueryLog"]

MAX_WAITING = 4_096
"""Queries that may wait to be written; more are lost, and counted."""
WRITE_EVERY_S = 0.2
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class QueryLog:
    """Writes a sample of the searches; does nothing where it has no file.

    Args:
        metrics: where lost queries are counted.
        path: the file; "" for none.
        share: of the requests, in [0, 1].
        max_bytes: size at which the file is rotated.
        max_files: rotated files that are kept, >= 1.

    Raises:
        ConfigError: if the file cannot be written.
    """

    def __init__(
        self,
        metrics: Metrics,
        path: str = "",
        share: float = 1.0,
        max_bytes: int = 64 << 20,
        max_files: int = 4,
    ) -> None:
        self._lost = metrics.query_log_lost
        self._bound = round(share * 2**32)
        self._waiting: deque[tuple[float, LoggedQuery, ResultFragment | None]] = deque()
        self._stop = threading.Event()
        self._is_failing = False
        self._thread: threading.Thread | None = None
        if not path:
            self._bound = 0
            return
        self._file = RotatedFile(Path(path), max_bytes, max_files)
        try:
            self._file.write([])
        except OSError as error:
            raise ConfigError(
                f"--query-log (GLOW_QUERY_LOG): cannot write to {path}: {error.strerror}; "
                "name a file in a folder that exists and that the service may write to"
            ) from error
        self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
        self._thread.start()

    def wants(self, request_id: str) -> bool:
        """Whether a request is in the sample: by a hash of its id, so that every worker and every run agree."""
        return zlib.crc32(request_id.encode()) < self._bound

    def log(self, query: LoggedQuery, result: ResultFragment | None = None) -> None:
        """Notes a search, if it is in the sample; some microseconds, and no failure.

        Args:
            query: what to note.
            result: what was found; if given, `hits` is read from it, by the thread.
        """
        if not self.wants(query.request_id):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._lost.labels("queue_full").inc()
            return
        self._waiting.append((time.time(), query, result))

    def close(self) -> None:
        """Writes what waits, and closes the file; returns within seconds also where the disk does not."""
        if self._thread is None:
            return
        self._bound = 0
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
                lines.append(_line(*self._waiting.popleft()))
            except Exception:  # whatever it is: one query is lost, and the thread goes on
                self._lost.labels("not_json").inc()
        if not lines:
            return
        try:
            self._file.write(lines)
            self._is_failing = False
        except OSError as error:
            self._lost.labels("not_written").inc(len(lines))
            if not self._is_failing:  # once for each time that it begins to fail
                _logger.error("the query log cannot be written; queries are lost until it can: %s", error)
            self._is_failing = True


def _line(seconds: float, query: LoggedQuery, result: ResultFragment | None) -> bytes:
    when = query.time or datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    hits = tuple(hit["id"] for hit in result.hits()) if result else query.hits
    return orjson.dumps(replace(query, time=when, hits=hits).values()) + b"\n"
