"""Reading what was accepted, of all writers, in the order in which it was."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glow.errors import FormatError
from glow.ingest.records import Operation, OperationId, read_line
from glow.ingest.state import IngestState, Position, read_state, remove_outcomes

__all__ = ["LOG_FOLDER", "Accepted", "has_log", "read_accepted", "remove_applied", "waiting_bytes", "writers"]

LOG_FOLDER = "log"
KEPT_S = 24 * 3600.0
"""How long a file stays after all of it was applied and nobody writes to it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An operation of the log.

    Attributes:
        id: which one.
        position: of its writer, once it is applied.
        operation: what is to be done; None where its line is damaged.
        fault: why there is none.
    """

    id: OperationId
    position: Position
    operation: Operation | None
    fault: str = ""


def read_accepted(folder: Path, state: IngestState) -> Iterator[Accepted]:
    """Yields what waits, of all writers, by the time when it was accepted.

    A last line that is not whole belongs to a write that nobody was told is accepted, or that is under way.

    Args:
        folder: `.ingest` of an index root.
        state: how far it was applied.
    """
    files = sorted((folder / LOG_FOLDER).glob("*.log")) if (folder / LOG_FOLDER).is_dir() else []
    waiting = (_of_writer(path, state.applied.get(path.stem, Position())) for path in files)
    for _, accepted in heapq.merge(*waiting, key=lambda pair: (pair[0], pair[1].id)):
        yield accepted


def _of_writer(path: Path, position: Position) -> Iterator[tuple[int, Accepted]]:
    """Each operation of a file behind a position, and when it was accepted; a damaged one counts with the one before it."""
    at = 0
    with path.open("rb") as file:
        file.seek(position.offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            position = Position(number=position.number + 1, offset=position.offset + len(line))
            name = OperationId(path.stem, position.number)
            try:
                operation = read_line(line[:-1])
                if operation.number != position.number:
                    raise FormatError(f"it says to be number {operation.number}")
            except FormatError as error:
                fault = f"line {position.number} of {path.name} is damaged: {error}"
                yield at, Accepted(name, position, None, fault)
            else:
                at = operation.at
                yield at, Accepted(name, position, operation)


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
    """Removes files that were applied whole and were not written to for a day, and with each what came of its operations."""
    for path in (folder / LOG_FOLDER).glob("*.log"):
        status = path.stat()
        offset = state.applied.get(path.stem, Position()).offset
        if now - status.st_mtime > KEPT_S and b"\n" not in _rest(path, offset):
            path.unlink(missing_ok=True)
            remove_outcomes(folder, path.stem)


def _rest(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def has_log(folder: Path, operation: OperationId) -> bool:
    """Whether an operation stands in the log: its writer's file has so many whole lines."""
    path = folder / LOG_FOLDER / f"{operation.writer}.log"
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file) >= operation.number
