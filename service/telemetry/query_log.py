"""The query log, a sample of the searches, and the feedback log, both as JSON Lines with one file per worker.

They are off unless `query_log` and `feedback_log` name files: queries and clicks are personal data.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
import time
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from glow.errors import ConfigError
from glow.query_log import Feedback, LoggedQuery
from glow_service.fragment import ResultFragment
from glow_service.telemetry.logs import LineLog
from glow_service.telemetry.metrics import Metrics


class QueryLog:
    """Writes a sample of the searches; does nothing without a file."""

    def __init__(self, metrics: Metrics, path: str = "", share: float = 1.0) -> None:
        """`share` is the fraction of the searches to log, in [0, 1]."""
        self._bound = round(share * 2**32) if path else 0
        self._log = LineLog("query_log", metrics.query_log_lost, Path(path)) if path else None

    def wants(self, request_id: str) -> bool:
        """Whether a request is in the sample, by a hash of its id, so that all workers and runs agree."""
        return zlib.crc32(request_id.encode()) < self._bound

    def log(self, query: LoggedQuery, result: ResultFragment | None = None) -> None:
        """Queues a search, if it is in the sample; takes microseconds and never raises."""
        if self._log is None or not self.wants(query.request_id):
            return
        seconds = time.time()

        def line() -> bytes:
            hits = tuple(hit["id"] for hit in result.hits()) if result else query.hits
            return orjson.dumps(replace(query, time=query.time or _iso(seconds), hits=hits).values())

        self._log.put(line)

    def close(self) -> None:
        """Writes waiting lines, and closes the file; returns within seconds even if the disk hangs."""
        self._bound = 0
        if self._log is not None:
            self._log.close()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# Random keys in files next to a log, which all processes of a service share.

KEY_BYTES = 32


def shared_key(log: Path, suffix: str) -> bytes:
    """Reads the key (>= 32 bytes) in a file next to a log; makes it, under a lock, if it is missing or too short."""
    path = log.with_name(log.name + suffix)
    lock = os.open(log.with_name(f".{log.name}.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key = path.read_bytes() if path.exists() else b""
        if len(key) < KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            path.unlink(missing_ok=True)  # one of other permissions
            path.touch(0o600)
            path.write_bytes(key)
        return key
    finally:
        os.close(lock)


# The feedback log: clicks and relevance judgments, with a pseudonym of each person. The pseudonym is a keyed hash.
# The key is random, is stored next to the log, and is replaced every `SALT_DAYS`: then nobody can find out whom an
# older hash means. The log is off unless `feedback_log` names a file.

SALT_DAYS = 30
"""How long a person keeps the same pseudonym, in days."""
DAY_S = 86_400
SOURCE_CHARACTERS = 16
KEY_SUFFIX = ".key"


def feedback_key(log: str, given: str = "") -> bytes:
    """The key that signs request ids for feedback: `given` if set, otherwise that of a file next to the log."""
    if given:
        return hashlib.sha256(given.encode()).digest()
    try:
        return shared_key(Path(log), KEY_SUFFIX)
    except OSError as error:
        raise ConfigError(
            f"--feedback-log (GLOW_FEEDBACK_LOG): cannot read or make the key {log}{KEY_SUFFIX}: {error.strerror}; "
            "allow the service to read it and to write to its folder, or set feedback_key"
        ) from error


class FeedbackLog:
    """Writes feedback; does nothing without a file."""

    def __init__(self, metrics: Metrics, path: str = "") -> None:
        self._metrics, self._path = metrics, Path(path)
        self._log = LineLog("feedback_log", metrics.feedback_lost, self._path) if path else None
        self._period, self._salt = -1, b""

    @property
    def is_on(self) -> bool:
        """Whether there is a file."""
        return self._log is not None

    def log(self, feedback: Feedback, who: str) -> None:
        """Queues feedback to be written; takes microseconds and never raises."""
        if self._log is None:
            return
        self._metrics.feedback.labels(feedback.kind).inc()
        seconds = time.time()
        self._log.put(lambda: self._line(seconds, feedback, who))

    def close(self) -> None:
        """Writes waiting lines, and closes the file."""
        if self._log is not None:
            self._log.close()

    def _line(self, seconds: float, feedback: Feedback, who: str) -> bytes:
        salt = self._salt_at(seconds)
        source = hmac.new(salt, who.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        # A hash of the salt, not of the time: a new salt gives new pseudonyms, and replicas may have different salts.
        period = hashlib.sha256(b"period" + salt).hexdigest()
        source, period = source[:SOURCE_CHARACTERS], period[:SOURCE_CHARACTERS]
        return orjson.dumps(replace(feedback, time=_iso(seconds), source=source, period=period).values())

    def _salt_at(self, seconds: float) -> bytes:
        """The random key of a period, which all processes of one log share; older keys are removed."""
        period = int(seconds // (SALT_DAYS * DAY_S))
        if period != self._period:
            suffix = f".salt-{SALT_DAYS}-{period}"
            self._salt = shared_key(self._path, suffix)
            for path in self._path.parent.glob(f"{self._path.name}.salt-*"):
                if path.name != self._path.name + suffix:
                    path.unlink(missing_ok=True)
            self._period = period
        return self._salt
