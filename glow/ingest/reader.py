"""Reads the accepted writes of all writers, in the order of acceptance."""

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glow.errors import FormatError
from glow.ingest.records import LogClock, Operation, OperationId, find_headers, last_header, read_line
from glow.ingest.state import OUTCOMES_FOLDER, IngestState, Position, read_state

LOG_FOLDER = "log"
"""Directory of accepted writes: files of each writer."""
KEPT_S = 24 * 3600.0
"""How long an applied file is kept after its last write."""
SETTLED_S = 60.0
"""So long after a file's last write, damage is real: another host no longer sees half of a write in progress."""
OVER_S = 2 * 3600.0
"""A file that was idle for so long has ended: its writer would have begun a new one after an hour."""
MOST_MISSING = 300_000
"""Most operations that can be lost between two lines; a file has no space for more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An operation of the log."""

    id: OperationId  # the operation's id
    position: Position  # the writer's position after this operation
    operation: Operation | None  # the write; None if its line is damaged
    fault: str = ""  # why `operation` is None


def read_accepted(folder: Path, state: IngestState) -> Iterator[Accepted]:
    """Yields the waiting operations of all writers, by the time of their acceptance.

    What is accepted after this call began is left to the next one. So an operation never precedes another that was
    acknowledged before it was sent. An incomplete last line belongs to a write that was never acknowledged or is in
    progress.
    """
    if not (folder / LOG_FOLDER).is_dir():
        return
    clock = LogClock(folder)
    with clock.tick() as until:
        pass  # every operation that was acknowledged earlier is in its file by now
    clock.close()
    files = sorted((folder / LOG_FOLDER).glob("*.log"))
    waiting = (_of_writer(path, state.applied.get(path.stem, Position()), until) for path in files)
    for _, accepted in heapq.merge(*waiting, key=lambda pair: (pair[0], pair[1].id)):
        yield accepted


def _of_writer(path: Path, position: Position, until: int) -> Iterator[tuple[int, Accepted]]:
    """Operations of a file after a position, with their times, up to a time; a damaged one has the time of the one before it."""
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
    """One file, read line by line.

    Damage is reported once the next readable operation tells how many operations were lost.
    """

    path: Path  # the file
    position: Position  # of the last operation that was yielded
    at: int = 0  # when that operation was accepted
    highest: int = 0  # number that the damaged lines after `position` claim; 0 if none is readable
    reason: str = ""  # why the first of them is damaged; "" if there is none

    def read(self, line: bytes, start: int) -> Iterator[tuple[int, Accepted]]:
        """The operations of a line, each after the missing ones before it."""
        operations = self._operations(line)
        for place, operation in enumerate(operations, 1):
            if not self.position.number < operation.number <= self.position.number + MOST_MISSING:
                continue  # already read, or its number is too high for any file
            yield from self._missing(operation.number - 1, start)
            offset = start + len(line) if place == len(operations) else start
            self.position = Position(number=operation.number, offset=offset)
            self.at, self.highest, self.reason = operation.at, 0, ""
            yield self.at, Accepted(OperationId(self.path.stem, operation.number), self.position, operation)

    def name_damaged(self, end: int) -> Iterator[tuple[int, Accepted]]:
        """The operations lost in damaged lines at the end of a file: those that the lines claim, at least one."""
        if self.reason:
            yield from self._missing(max(self.highest, self.position.number + 1), end)
        self.highest, self.reason = 0, ""

    def name_torn(self, end: int) -> Iterator[tuple[int, Accepted]]:
        """Handles a last line without its line feed, if its writer has ended.

        It is never applied, even if it can be read: operations that were accepted later have been applied by now.
        """
        self.reason = "its end is missing"
        yield from self._missing(self.position.number + 1, end)

    def _operations(self, line: bytes) -> list[Operation]:
        """The readable operations of a line: more than one if a line feed was lost."""
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
        """A fault for each operation after the position, up to a number."""
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
    """Writers that have files."""
    return frozenset(path.stem for path in (folder / LOG_FOLDER).glob("*.log"))


def remove_applied(folder: Path, state: IngestState, now: float) -> None:
    """Removes files that were fully applied and idle for a day, with the outcomes of their operations."""
    clock = LogClock(folder)
    for path in (folder / LOG_FOLDER).glob("*.log"):
        if now - path.stat().st_mtime <= KEPT_S:
            continue
        with clock.tick():  # no writer can append meanwhile
            offset = state.applied.get(path.stem, Position()).offset
            if now - path.stat().st_mtime > KEPT_S and b"\n" not in path.read_bytes()[offset:]:
                path.unlink(missing_ok=True)
                (folder / OUTCOMES_FOLDER / f"{path.stem}.jsonl").unlink(missing_ok=True)
    clock.close()


def has_log(folder: Path, operation: OperationId) -> bool:
    """Whether an operation is in the log, by the last number of its writer's file."""
    header = last_header(folder / LOG_FOLDER / f"{operation.writer}.log")
    return header is not None and header.number >= operation.number
