"""Lines of the query log: the searches that a service recorded, one JSON object each.

`glow_service.telemetry.query_log` writes them; comparisons of index versions on real queries read them.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import Any

from glow.collection import parse_object
from glow.errors import InputError, RecordError


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


@dataclass(slots=True)
class SkippedLines:
    """Lines of a log that could not be read, as after a crash or a full disk; only these lines are skipped."""

    count: int = 0
    first: str = ""  # file, line and fault of the first; "" if there is none

    def note(self, fault: RecordError) -> None:
        """Counts one more."""
        self.count += 1
        self.first = self.first or str(fault)

    def __str__(self) -> str:
        """Message for people."""
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
    return read_log(path, _parse, skipped)


def read_log(path: Path, parse: Callable[[bytes, str], Any], skipped: SkippedLines | None) -> Iterator[Any]:
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


def _parse(line: bytes, place: str) -> LoggedQuery:
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
