"""Reading what was accepted, of all writers, in the order in which it was."""

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glow.errors import FormatError
from glow.ingest.clock import LogClock
from glow.ingest.records import Operation, OperationId, find_headers, read_line
from glow.ingest.state import IngestState, Position, read_state, remove_outcomes
from glow.ingest.tail import last_header

__all__ = ["LOG_FOLDER", "Accepted", "has_log", "read_accepted", "remove_applied", "waiting_bytes", "writers"]

LOG_FOLDER = "log"
"""Accepted writes, in files of each writer."""
KEPT_S = 24 * 3600.0
"""How long a file stays after all of it was applied and nobody writes to it."""
SETTLED_S = 60.0
"""So long after a file's last write its damage is no write that another host sees half of."""
OVER_S = 2 * 3600.0
"""A file that was not written to for so long has ended: its writer would have begun another one after an hour."""
MOST_MISSING = 300_000
"""Operations that can have been lost between two lines; a file has room for no more of them."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An operation of the log.

    Attributes:
        id: which one.
        position: of its writer, once it is applied.
        operation: what is to be done; None if its line is damaged.
        fault: why there is none.
    """

    id: OperationId
    position: Position
    operation: Operation | None
    fault: str = ""


def read_accepted(folder: Path, state: IngestState) -> Iterator[Accepted]:
    """Yields what waits, of all writers, by the time when it was accepted.

    What is accepted later than this call waits for the next one: then nothing is yielded before an operation that was acknowledged
    before it was sent. A last line that is not whole belongs to a write that was never acknowledged, or is under way.

    Args:
        folder: `.ingest` of an index root.
        state: how far it was applied.

    Raises:
        LogBusyError: if a process that is stopped keeps the log locked.
        OSError: if the log cannot be read, or its clock not be written.
    """
    if not (folder / LOG_FOLDER).is_dir():
        return
    clock = LogClock(folder)
    with clock.tick() as until:
        pass  # what was acknowledged before an operation with an earlier time is in its file by now
    clock.close()
    files = sorted((folder / LOG_FOLDER).glob("*.log"))
    waiting = (_of_writer(path, state.applied.get(path.stem, Position()), until) for path in files)
    for _, accepted in heapq.merge(*waiting, key=lambda pair: (pair[0], pair[1].id)):
        yield accepted


def _of_writer(path: Path, position: Position, until: int) -> Iterator[tuple[int, Accepted]]:
    """Each operation of a file behind a position and when it was accepted, up to a time; a damaged one counts with the one before it."""
    writer = _Writer(path, position)
    with path.open("rb") as file:
        file.seek(position.offset)
        end = position.offset
        torn = b""
        for line in file:
            if not line.endswith(b"\n"):
                torn = line
                break
            for at, accepted in writer.read(line, end):
                if at > until:
                    return
                yield at, accepted
            end += len(line)
        idle_s = time.time() - path.stat().st_mtime
    if idle_s > SETTLED_S:
        yield from writer.name_damaged(end)
    if torn and idle_s > OVER_S:
        yield from writer.name_torn(end + len(torn))


@dataclass(slots=True)
class _Writer:
    """One file, read line by line. Damage is named once the next operation that can be read tells how many it cost.

    Attributes:
        path: the file.
        position: of the last operation that was yielded.
        at: when that was accepted.
        highest: number that the damaged lines behind `position` claim; 0 if none is readable.
        reason: why the first of them is damaged; "" if there is none.
    """

    path: Path
    position: Position
    at: int = 0
    highest: int = 0
    reason: str = ""

    def read(self, line: bytes, start: int) -> Iterator[tuple[int, Accepted]]:
        """The operations of a line, and before each of them those that are missing."""
        found = self._operations(line)
        for place, operation in enumerate(found, 1):
            if not self.position.number < operation.number <= self.position.number + MOST_MISSING:
                continue  # it was read already, or no file is long enough for it
            yield from self._missing(operation.number - 1, start)
            offset = start + len(line) if place == len(found) else start
            self.position = Position(number=operation.number, offset=offset)
            self.at, self.highest, self.reason = operation.at, 0, ""
            yield self.at, Accepted(OperationId(self.path.stem, operation.number), self.position, operation)

    def name_damaged(self, end: int) -> Iterator[tuple[int, Accepted]]:
        """What damaged lines cost that no readable operation follows: what they claim, and one at least."""
        if self.reason:
            yield from self._missing(max(self.highest, self.position.number + 1), end)
        self.highest, self.reason = 0, ""

    def name_torn(self, end: int) -> Iterator[tuple[int, Accepted]]:
        """A last line without its line feed, which nobody writes to any more.

        It is never applied, even if it can be read: operations that were accepted later have been applied by now.
        """
        self.reason = "its end is missing"
        yield from self._missing(self.position.number + 1, end)

    def _operations(self, line: bytes) -> list[Operation]:
        """What can be read of a line: more than one operation if a line feed was lost."""
        try:
            return [read_line(self.path.stem, line)]
        except FormatError as error:
            self.reason = self.reason or str(error)
        headers = find_headers(line)
        ends = [*(header.start for header in headers[1:]), len(line)]
        operations = []
        for header, end in zip(headers, ends, strict=False):
            try:
                operations.append(read_line(self.path.stem, line[header.start : end]))
            except FormatError:
                if header.number <= self.position.number + MOST_MISSING:
                    self.highest = max(self.highest, header.number)
        return operations

    def _missing(self, last: int, offset: int) -> Iterator[tuple[int, Accepted]]:
        """A fault for each operation behind the position, up to a number."""
        reason = self.reason or "it is missing"
        for number in range(self.position.number + 1, last + 1):
            self.position = Position(number=number, offset=offset)
            fault = f"line {number} of {self.path.name} is damaged: {reason}"
            yield self.at, Accepted(OperationId(self.path.stem, number), self.position, None, fault)


def waiting_bytes(folder: Path) -> int:
    """Bytes of the log that were not applied yet."""
    log = folder / LOG_FOLDER
    if not log.is_dir():
        return 0
    applied = read_state(folder).applied
    sizes = {path.stem: path.stat().st_size for path in log.glob("*.log")}
    return sum(max(size - applied.get(name, Position()).offset, 0) for name, size in sizes.items())


def writers(folder: Path) -> frozenset[str]:
    """Whose files there are."""
    return frozenset(path.stem for path in (folder / LOG_FOLDER).glob("*.log"))


def remove_applied(folder: Path, state: IngestState, now: float) -> None:
    """Removes files that were applied whole and were not written to for a day, and with each what came of its operations.

    Raises:
        LogBusyError, OSError: as `read_accepted`.
    """
    clock = LogClock(folder)
    for path in (folder / LOG_FOLDER).glob("*.log"):
        if now - path.stat().st_mtime <= KEPT_S:
            continue
        with clock.tick():  # nobody writes to it meanwhile
            offset = state.applied.get(path.stem, Position()).offset
            if now - path.stat().st_mtime > KEPT_S and b"\n" not in _rest(path, offset):
                path.unlink(missing_ok=True)
                remove_outcomes(folder, path.stem)
    clock.close()


def _rest(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def has_log(folder: Path, operation: OperationId) -> bool:
    """Whether an operation is in the log, by the last number of its writer's file."""
    header = last_header(folder / LOG_FOLDER / f"{operation.writer}.log")
    return header is not None and header.number >= operation.number
