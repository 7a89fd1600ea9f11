"""The query log: a sample of the searches as JSON Lines, in one file to which all workers append.

It is off unless `query_log` names a file: queries are personal data.
"""

import time
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from glow.query_log import LoggedQuery
from glow_service.fragment import ResultFragment
from glow_service.telemetry.line_log import LineLog
from glow_service.telemetry.metrics import Metrics

__all__ = ["QueryLog"]


class QueryLog:
    """Writes a sample of the searches; does nothing without a file.

    Args:
        metrics: counts lost queries.
        path: the file; "" for none.
        share: fraction of the searches to log, in [0, 1].
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
        self._bound = round(share * 2**32) if path else 0
        self._log: LineLog | None = None
        if path:
            self._log = LineLog("query_log", metrics.query_log_lost, Path(path), max_bytes, max_files)

    def wants(self, request_id: str) -> bool:
        """Whether a request is in the sample, by a hash of its id, so that all workers and runs agree."""
        return zlib.crc32(request_id.encode()) < self._bound

    def log(self, query: LoggedQuery, result: ResultFragment | None = None) -> None:
        """Queues a search to be written, if it is in the sample; takes microseconds and never raises.

        Args:
            query: the search.
            result: its result; if given, the thread reads `hits` from it.
        """
        if self._log is None or not self.wants(query.request_id):
            return
        seconds = time.time()
        self._log.put(lambda: _line(seconds, query, result))

    def close(self) -> None:
        """Writes waiting lines, and closes the file; returns within seconds even if the disk hangs."""
        self._bound = 0
        if self._log is not None:
            self._log.close()


def _line(seconds: float, query: LoggedQuery, result: ResultFragment | None) -> bytes:
    when = query.time or datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    hits = tuple(hit["id"] for hit in result.hits()) if result else query.hits
    return orjson.dumps(replace(query, time=when, hits=hits).values()) + b"\n"
