"""Lines of the query log and the feedback log: the searches that a service recorded, and what users did, one JSON object each.

`glow_service.telemetry.query_log` writes them; the gate and `glow learn-clicks` read them.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal, get_args

from glow.collection import parse_object
from glow.errors import InputError, RecordError

FeedbackKind = Literal["click", "like", "dislike"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = get_args(FeedbackKind)


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """One logged search."""

    request_id: str  # the searches of a batch share it
    query: str  # the text
    retriever: str  # `dense`, `lexical` or `hybrid`
    top_k: int  # hits requested
    offset: int  # hits skipped
    index: str  # version that was searched
    took_ms: float  # milliseconds from the request's first byte to its response
    filter: Any = None  # of the request
    degraded: tuple[str, ...] = ()  # what the response lacks
    hits: tuple[str, ...] = ()  # ids of documents, best first
    time: str = ""  # UTC, ISO 8601; the writer sets it if it is ""

    def values(self) -> dict[str, Any]:
        """The line as JSON values, the time first."""
        return {"time": self.time, **asdict(self), "took_ms": round(self.took_ms, 3)}


@dataclass(frozen=True, slots=True)
class Feedback:
    """One click or relevance judgment."""

    request_id: str  # of the search that found the document
    id: str  # the document's id
    kind: FeedbackKind  # what the user did
    rank: int | None = None  # of the hit, from 1, as the client sent it; None if it did not
    dwell_s: float | None = None  # seconds that the user spent on the document; None if unknown
    source: str = ""  # pseudonym of the user within one salt period
    time: str = ""  # UTC, ISO 8601; the writer sets it if it is ""
    period: str = ""  # salt period of `source`; a user has another pseudonym in each period

    def values(self) -> dict[str, Any]:
        """The line as JSON values, the time first."""
        return {"time": self.time, **asdict(self)}


@dataclass(slots=True)
class SkippedLines:
    """Lines of a log that could not be read, as after a crash or a full disk; only these lines are skipped."""

    count: int = 0
    first: str = ""  # file, line and fault of the first; "" if there is none

    def note(self, fault: RecordError) -> None:
        self.count += 1
        self.first = self.first or str(fault)

    def __str__(self) -> str:
        return f"{self.count} damaged lines of the logs were skipped; the first: {self.first}"


def numbered(path: Path, number: int) -> Path:
    """The name of a rotated log file; 1 is the latest."""
    return path.with_name(f"{path.name}.{number}")


def worker_log(path: Path, number: int) -> Path:
    """The file of a service's worker, numbered from 1; the first one's has the name of the log."""
    return path if number == 1 else path.with_name(f"{path.name}-{number}")


def read_query_log(path: Path, skipped: SkippedLines | None = None) -> Iterator[LoggedQuery]:
    """Reads a query log of all workers from its oldest query on, with rotated files.

    A last line without an end is still being written, and is skipped. Other invalid lines are skipped and counted.
    """
    return _read(path, _parse_query, skipped)


def read_feedback(path: Path, skipped: SkippedLines | None = None) -> Iterator[Feedback]:
    """Reads a feedback log from its oldest line on, as `read_query_log` does."""
    return _read(path, _parse_feedback, skipped)


def _read(path: Path, parse: Callable[[bytes, str], Any], skipped: SkippedLines | None) -> Iterator[Any]:
    """Reads the lines of all workers' files in order of time; `parse` gets a line and its place."""

    def read(log: Path) -> Iterator[Any]:
        for line, place in _lines(log):
            try:
                yield parse(line, place)
            except RecordError as error:
                if skipped is not None:
                    skipped.note(error)

    others = path.parent.glob(f"{escape(path.name)}-[1-9]*")  # with rotated ones, which end in a number
    logs = [path, *(log for log in sorted(others) if not log.suffix[1:].isdigit())]
    return heapq.merge(*map(read, logs), key=lambda line: line.time)


def _lines(path: Path) -> Iterator[tuple[bytes, str]]:
    """Yields the complete lines of one file with their places, its rotated files first."""
    number = 1
    while numbered(path, number).exists():
        number += 1
    for file in [*(numbered(path, older) for older in range(number - 1, 0, -1)), path]:
        try:
            with file.open("rb") as lines:
                for count, line in enumerate(lines, start=1):
                    if line.endswith(b"\n"):
                        yield line, f"{file.name}:{count}"
        except OSError as error:
            raise InputError(f"cannot read the log {file}: {error.strerror}") from error


def _parse_query(line: bytes, place: str) -> LoggedQuery:
    try:
        values = parse_object(line)
        query = LoggedQuery(
            **{**values, "degraded": tuple(values["degraded"]), "hits": tuple(values["hits"])}
        )
        for name, text in (("query", query.query), ("time", query.time)):
            if not isinstance(text, str):
                raise TypeError(f"expected text as {name!r}, found {text!r:.40}")
    except (RecordError, KeyError, TypeError) as error:
        raise RecordError(f"{place}: not a line of a query log: {error}") from error
    return query


def _parse_feedback(line: bytes, place: str) -> Feedback:
    try:
        feedback = Feedback(**parse_object(line))
        texts = (feedback.request_id, feedback.id, feedback.source, feedback.time, feedback.period)
        if feedback.kind not in FEEDBACK_KINDS or not all(isinstance(each, str) for each in texts):
            raise TypeError("a value is of the wrong type")
        if not feedback.period:
            raise TypeError("'period' is missing")
        if feedback.dwell_s is not None and not isinstance(feedback.dwell_s, int | float):
            raise TypeError("'dwell_s' is not a number")
    except (RecordError, TypeError) as error:
        raise RecordError(f"{place}: not a line of a feedback log: {error}") from error
    return feedback
