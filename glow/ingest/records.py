"""The lines of the log, one operation each with a checksum, and the clock that orders them.

    1c291ca3 {"number": 7, "at": 1764028800000000000, "kind": "upsert", "documents": [{"_id": …}, …]}

Each process that accepts writes has its own files, so damage affects one writer. The checksum covers the writer's name
and the operation: a line from another writer's file counts as damaged.

The clock is a number in a file, which every append and every reader locks and raises. Clocks of hosts differ and may
be set back. This one only goes forward, because each user locks the file (flock). So a write that was sent after
another one was acknowledged has the later time, on any two hosts.
"""

import fcntl
import json
import mmap
import os
import re
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from glow.artifact import try_lock
from glow.errors import BusyError, FormatError, QueryError
from glow.options import StrictModel

Kind = Literal["upsert", "patch", "delete", "delete_by_filter"]
_HEADER = re.compile(rb'[0-9a-f]{8} \{"number": ([1-9][0-9]{0,17}), "at": ([0-9]{1,20}), ')
"""Start of a line. No text inside a line matches it: JSON escapes quotation marks in strings."""
_ID = re.compile(r"([0-9]{8}T[0-9]{6}-[0-9a-f]{8})-([1-9][0-9]{0,17})")


class OperationId(NamedTuple):
    """Id of an operation: its writer, and its number there, from 1."""

    writer: str
    number: int

    def __str__(self) -> str:
        return f"{self.writer}-{self.number}"


class Operation(StrictModel):
    """One accepted write."""

    number: int = Field(ge=1)  # of its writer, from 1
    at: int = Field(ge=0)  # when it was accepted, in nanoseconds since 1970; it grows within one writer
    kind: Kind  # of the operation
    documents: list[dict[str, Any]] = Field(default_factory=list)  # for `upsert`, as in `corpus.jsonl`
    id: str = ""  # for `patch`: the document
    metadata: dict[str, Any] = Field(default_factory=dict)  # for `patch`: JSON merge patch of its metadata
    ids: list[str] = Field(default_factory=list)  # for `delete`
    filter: dict[str, Any] | None = None  # for `delete_by_filter`: as in a search
    all: bool = False  # for `delete_by_filter`: the filter may be unrestricted, which deletes every document

    @property
    def size(self) -> int:
        """Number of documents or ids in it; a filter counts as one."""
        return max(len(self.documents) + len(self.ids), 1)


def merged(value: Any, patch: Any) -> Any:
    """A JSON value after a merge patch (RFC 7396): null removes a member."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), item)
    return result


def parse_operation_id(text: str) -> OperationId:
    """Reads an operation's id."""
    match = _ID.fullmatch(text)
    if match is None:
        raise QueryError(f"{text!r:.80} is not an operation id; use the id in a write's response")
    return OperationId(match[1], int(match[2]))


class Header(NamedTuple):
    """Start of a line: its position, its number, and when it was accepted."""

    start: int
    number: int
    at: int


def to_content(kind: Kind, content: dict[str, Any]) -> bytes:
    """JSON object of a line without number and time, which are added last."""
    operation = Operation(number=1, at=0, kind=kind, **content)
    values = operation.model_dump(exclude_defaults=True, exclude={"number", "at"})
    return json.dumps(values, ensure_ascii=False).encode(errors="replace")


def to_line(writer: str, number: int, at: int, content: bytes) -> bytes:
    """An operation's line, its line feed included."""
    body = b'{"number": %d, "at": %d, %s' % (number, at, content[1:])
    return b"%08x %s\n" % (_checksum(writer, body), body)


def find_headers(line: bytes) -> list[Header]:
    """Where operations begin in a line: normally one; more if a line feed was lost; none if its beginning is damaged."""
    return [Header(match.start(), int(match[1]), int(match[2])) for match in _HEADER.finditer(line)]


def read_line(writer: str, line: bytes) -> Operation:
    """Reads an operation; anything after its JSON object, such as a line feed, is ignored."""
    checksum, _, body = line.partition(b" ")
    body = body[: body.rfind(b"}") + 1]
    if checksum != b"%08x" % _checksum(writer, body):
        raise FormatError("its checksum differs")
    try:
        return Operation.model_validate_json(body)
    except ValidationError as error:
        raise FormatError("it is not an operation of this version of GLOW") from error


def _checksum(writer: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(writer.encode()))


HEADER_BYTES = 80
"""Upper bound of a header's length; a line may have megabytes."""


def last_header(path: Path) -> Header | None:
    """Header of the last complete line that has a readable one; None if there is none, or no file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = data.rfind(b"\n")
            while end > 0:
                start = data.rfind(b"\n", 0, end) + 1
                if headers := find_headers(data[start : min(start + HEADER_BYTES, end)]):
                    return headers[0]
                end = start - 1
    except (FileNotFoundError, ValueError):  # mmap refuses an empty file
        pass
    return None


def latest_time(folder: Path) -> int:
    """When the last operation of any file was accepted; 0 if there is none."""
    if not folder.is_dir():
        return 0
    return max((header.at for path in folder.glob("*.log") if (header := last_header(path))), default=0)


CLOCK_FILE = "clock"
"""Clock of the log, which orders the writes of all writers."""
LOCK_WAIT_S = 5.0
POLL_S = 0.0005
"""How long to wait for the lock, which one append holds without its sync."""
_LENGTH = 30
"""Bytes of the file: checksum, blank, 20 digits, line feed."""


class LogBusyError(BusyError, code="ingest_busy"):
    """Another process holds the lock of the write log, such as one that was stopped during a write."""


class LogClock:
    """The clock of one log directory; safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLOCK_FILE
        self._lock = threading.Lock()
        self._descriptor = -1

    @contextmanager
    def tick(self, after: int = 0) -> Iterator[int]:
        """Takes the next time; no other process can take one until the block ends.

        Yields nanoseconds since 1970 by this host's clock, or one more than the last time taken by any process.
        """
        with self._lock:
            self._take(time.monotonic() + LOCK_WAIT_S)
            try:
                at = max(time.time_ns(), self._read() + 1, after + 1)
                digits = b"%020d" % at
                os.pwrite(self._descriptor, b"%08x %s\n" % (zlib.crc32(digits), digits), 0)
                yield at
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; another `tick` would reopen it."""
        with self._lock:
            self._close()

    def _take(self, until: float) -> None:
        """Locks the file of this name, which may have been replaced since the last time."""
        while True:
            if self._descriptor < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            while not try_lock(self._descriptor):
                if time.monotonic() >= until:
                    raise LogBusyError(
                        f"{self._path} stays locked by another process that writes to this log; check whether one is stopped"
                    )
                time.sleep(POLL_S)
            try:
                if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                    return
            except FileNotFoundError:
                pass
            self._close()

    def _read(self) -> int:
        """The last time taken; 0 if the file is new or damaged, since this host's clock is then a good estimate."""
        line = os.pread(self._descriptor, _LENGTH + 1, 0)
        checksum, _, digits = line.partition(b" ")
        digits = digits.strip()
        if not digits.isdigit() or checksum != b"%08x" % zlib.crc32(digits):
            return 0
        return int(digits)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
