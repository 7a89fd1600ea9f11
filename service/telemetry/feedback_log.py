"""The feedback log: clicks and relevance judgments, with a pseudonym of each person.

The pseudonym is a keyed hash. The key is random, is stored next to the log, and is replaced every `salt_days`: then nobody
can find out whom an older hash means. The log is off unless `feedback_log` names a file.
"""

import hashlib
import hmac
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from glow.errors import ConfigError
from glow.feedback import Feedback
from glow_service.telemetry.line_log import LineLog
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.shared_key import shared_key

__all__ = ["FeedbackLog", "feedback_key"]

DAY_S = 86_400
SOURCE_CHARACTERS = 16
KEY_SUFFIX = ".key"


def feedback_key(log: str, given: str = "") -> bytes:
    """The key that signs request ids for feedback.

    Args:
        log: file of the log; the key is stored permanently in a file next to it.
        given: the setting `feedback_key`, for a key that several services share; "": use the file.

    Raises:
        ConfigError: if the file can neither be read nor written.
    """
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
    """Writes feedback; does nothing without a file.

    Args:
        metrics: counts received and lost feedback.
        path: the file; "" for none.
        salt_days: how long a person keeps the same pseudonym, in days.
        max_bytes: size at which the file is rotated.
        max_files: rotated files that are kept, >= 1.

    Raises:
        ConfigError: if the file cannot be written.
    """

    def __init__(
        self,
        metrics: Metrics,
        path: str = "",
        salt_days: int = 30,
        max_bytes: int = 64 << 20,
        max_files: int = 4,
    ) -> None:
        self._metrics = metrics
        self._log: LineLog | None = None
        if path:
            self._log = LineLog("feedback_log", metrics.feedback_lost, Path(path), max_bytes, max_files)
            self._salt = _Salt(Path(path), salt_days)

    @property
    def is_on(self) -> bool:
        """Whether there is a file."""
        return self._log is not None

    def log(self, feedback: Feedback, who: str) -> None:
        """Queues feedback to be written; takes microseconds and never raises.

        Args:
            feedback: the feedback, without source, period and time.
            who: identifies the person; it is not written.
        """
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
        when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
        salt = self._salt.at(seconds)
        source = hmac.new(salt, who.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        # A hash of the salt, not of the time: a new salt gives new pseudonyms, and replicas may have different salts.
        period = hashlib.sha256(b"period" + salt).hexdigest()
        noted = replace(
            feedback, time=when, source=source[:SOURCE_CHARACTERS], period=period[:SOURCE_CHARACTERS]
        )
        return orjson.dumps(noted.values()) + b"\n"


class _Salt:
    """A random key per period, which all processes of one log share; older keys are removed."""

    def __init__(self, log: Path, days: int) -> None:
        self._log, self._days = log, days
        self._lock = threading.Lock()
        self._span, self._key = -1, b""

    def at(self, seconds: float) -> bytes:
        """The key for a time.

        Raises:
            OSError: if it can neither be read nor written.
        """
        span = int(seconds // (self._days * DAY_S))
        with self._lock:
            if span != self._span:
                self._key = self._read_or_make(span)
                self._span = span
        return self._key

    def _read_or_make(self, span: int) -> bytes:
        suffix = f".salt-{self._days}-{span}"
        key = shared_key(self._log, suffix)
        for path in self._log.parent.glob(f"{self._log.name}.salt-*"):
            if path.name != self._log.name + suffix:
                path.unlink(missing_ok=True)
        return key
