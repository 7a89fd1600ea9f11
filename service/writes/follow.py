"""The state of writes: waiting, applied to a version, or served by every replica; waiting requests share checks."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, QueryError
from glow.ingest import (
    IngestState,
    OperationId,
    Outcome,
    Position,
    find_outcome,
    has_log,
    published_state,
    read_state,
)
from glow_service.errors import OverloadedError

__all__ = ["Follower", "OperationState"]

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class OperationState:
    """The state of a write.

    Attributes:
        state: `waiting`; `applied` to a version; `visible`: every replica serves that version or a later one; `failed`.
        version: the version that contains it; "" while it waits.
        before: the version before a deletion by filter; "" otherwise.
        counts: numbers of documents, by outcome, of the batch in which it was applied.
        reason: why it failed; "" otherwise.
    """

    state: Literal["waiting", "applied", "visible", "failed"]
    version: str = ""
    before: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def is_final(self) -> bool:
        """Whether the state is final."""
        return self.state in ("visible", "failed")


class Follower:
    """Checks the state of writes in a separate thread; only one event loop may use it.

    Args:
        root: the index root.
        folder: directory of the write log.
        served: returns the live version of each replica.
        most: most waiting requests, >= 1.
    """

    def __init__(self, root: Path, folder: Path, served: Callable[[], Sequence[str]], most: int) -> None:
        self._root, self._folder, self._served, self._most = IndexRoot(root), folder, served, most
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="follow")
        self._waiting: dict[OperationId, list[asyncio.Future[OperationState]]] = {}
        self._places = 0
        self._task: asyncio.Task[None] | None = None
        self._published: tuple[str, IngestState] = ("", IngestState())
        self._outcomes: dict[OperationId, Outcome] = {}

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Reserves a place among the waiting requests for a block, before anything is written.

        Raises:
            OverloadedError: if too many requests wait.
        """
        if self._places >= self._most:
            raise OverloadedError(
                f"{self._most} requests already wait for visible writes, which is the limit; remove wait=visible, and "
                "use GET /operations/{id}"
            )
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    async def look(self, operation: OperationId) -> OperationState:
        """The current state of a write.

        Raises:
            QueryError: if the write is unknown.
        """
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, [operation])
        state = found[operation]
        if state is None:
            raise QueryError(f"unknown operation {operation}")
        return state

    async def wait(self, operation: OperationId, seconds: float) -> OperationState:
        """Waits for the final state of an accepted write, at most so many seconds; returns its state then."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(operation, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return await self.look(operation)
        finally:
            self._waiting[operation].remove(future)
            if not self._waiting[operation]:
                del self._waiting[operation]

    async def _poll(self) -> None:
        """Checks the waiting writes until none waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            states: dict[OperationId, OperationState | None] = {}
            with suppress(OSError):  # the disk of the log may work again before the requests time out
                states = await loop.run_in_executor(self._thread, self._look, list(self._waiting))
            for operation, state in states.items():
                for future in self._waiting.get(operation, ()):
                    if state is not None and state.is_final and not future.done():
                        future.set_result(state)
            await asyncio.sleep(POLL_S)

    def _look(self, operations: Iterable[OperationId]) -> dict[OperationId, OperationState | None]:
        """The states of writes, from small files; None for an unknown write."""
        wanted = set(operations)
        self._outcomes = {name: each for name, each in self._outcomes.items() if name in wanted}
        applied, served = self._applied(), self._served()
        return {each: self._state_of(each, applied, served) for each in wanted}

    def _applied(self) -> IngestState:
        """How far the log was applied; the entry in a version never changes."""
        try:
            version = self._root.current()
            if version != self._published[0]:
                self._published = version, published_state(self._root, version)
        except ArtifactError:
            pass  # the watcher reports the error; use state.json and the last known version
        return read_state(self._folder).with_later(self._published[1])

    def _state_of(
        self, operation: OperationId, applied: IngestState, served: Sequence[str]
    ) -> OperationState | None:
        if operation.number > applied.applied.get(operation.writer, Position()).number:
            is_known = operation in self._waiting or has_log(self._folder, operation)
            return OperationState("waiting") if is_known else None
        outcome = self._outcomes.get(operation) or find_outcome(self._folder, operation)
        if outcome is None:  # its version was published, but its outcome is not written yet
            return OperationState(_served_by(served, self._published[0]), self._published[0])
        self._outcomes[operation] = outcome
        if outcome.state == "failed":
            return OperationState("failed", outcome.version, reason=outcome.reason)
        return OperationState(
            _served_by(served, outcome.version), outcome.version, outcome.before, outcome.counts
        )


def _served_by(served: Sequence[str], version: str) -> Literal["visible", "applied"]:
    """Whether all replicas serve a version or a later one; names of versions sort by time."""
    return "visible" if served and all(each >= version for each in served) else "applied"
