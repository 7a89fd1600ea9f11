"""How far an operation has come: waiting in the log, in a version, served by every replica. One look serves everybody who waits."""

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
    """How far an operation has come.

    Attributes:
        state: `waiting`; `applied`, a version holds it; `visible`, every replica serves that version or a later one; `failed`.
        version: that holds it; "" while it waits.
        before: the version before a deletion by filter; "" for everything else.
        counts: what became of the documents of the batch that it was applied in.
        reason: why it failed.
    """

    state: Literal["waiting", "applied", "visible", "failed"]
    version: str = ""
    before: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def is_final(self) -> bool:
        """Whether waiting longer would change nothing."""
        return self.state in ("visible", "failed")


class Follower:
    """Looks how far operations have come, in a thread of its own; used from one event loop.

    Args:
        root: the index root.
        folder: of the log of writes.
        served: tells the live version of each replica.
        most: requests that may wait at a time, >= 1.
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
        """A place among those who wait, for a block; taken before anything is written.

        Raises:
            OverloadedError: if there is none.
        """
        if self._places >= self._most:
            raise OverloadedError(
                f"{self._most} requests wait for writes to be visible, and no more may; leave out wait=visible, and "
                "look at GET /operations/{id}"
            )
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    async def look(self, operation: OperationId) -> OperationState:
        """How far an operation has come now.

        Raises:
            QueryError: if nobody accepted it.
        """
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, [operation])
        state = found[operation]
        if state is None:
            raise QueryError(f"no operation {operation} was accepted here")
        return state

    async def wait(self, operation: OperationId, seconds: float) -> OperationState:
        """Waits until an operation that was accepted is visible, or failed, or for so long; how far it has come then."""
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
        """Looks for all who wait, until nobody does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            states: dict[OperationId, OperationState | None] = {}
            with suppress(OSError):  # the disk of the log may come back before those who wait give up
                states = await loop.run_in_executor(self._thread, self._look, list(self._waiting))
            for operation, state in states.items():
                for future in self._waiting.get(operation, ()):
                    if state is not None and state.is_final and not future.done():
                        future.set_result(state)
            await asyncio.sleep(POLL_S)

    def _look(self, operations: Iterable[OperationId]) -> dict[OperationId, OperationState | None]:
        """How far operations have come, by small files; None of one that nobody accepted."""
        wanted = set(operations)
        self._outcomes = {name: each for name, each in self._outcomes.items() if name in wanted}
        applied, served = self._applied(), self._served()
        return {each: self._state_of(each, applied, served) for each in wanted}

    def _applied(self) -> IngestState:
        """How far the log was applied; what a version says of it never changes."""
        try:
            version = self._root.current()
            if version != self._published[0]:
                self._published = version, published_state(self._root, version)
        except ArtifactError:
            pass  # whoever serves says what is wrong; state.json and the last version have what is known
        return read_state(self._folder).with_later(self._published[1])

    def _state_of(
        self, operation: OperationId, applied: IngestState, served: Sequence[str]
    ) -> OperationState | None:
        if operation.number > applied.applied.get(operation.writer, Position()).number:
            is_known = operation in self._waiting or has_log(self._folder, operation)
            return OperationState("waiting") if is_known else None
        outcome = self._outcomes.get(operation) or find_outcome(self._folder, operation)
        if outcome is None:  # its version was published, and what came of it is about to be noted
            return OperationState(_served_by(served, self._published[0]), self._published[0])
        self._outcomes[operation] = outcome
        if outcome.state == "failed":
            return OperationState("failed", outcome.version, reason=outcome.reason)
        return OperationState(
            _served_by(served, outcome.version), outcome.version, outcome.before, outcome.counts
        )


def _served_by(served: Sequence[str], version: str) -> Literal["visible", "applied"]:
    """Whether all serve a version or a later one: names of versions sort by when they were made."""
    return "visible" if served and all(each >= version for each in served) else "applied"
