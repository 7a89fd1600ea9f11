"""How far an operation has come: waiting in the log, in a version, served by every replica."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from glow.artifact import IndexRoot
from glow.errors import QueryError
from glow.ingest import OperationId, Position, find_outcome, has_log, known_state

__all__ = ["OperationState", "state_of"]


@dataclass(frozen=True, slots=True)
class OperationState:
    """How far an operation has come.

    Attributes:
        state: `waiting`; `applied`, a version holds it; `visible`, every replica serves that version or a later one; `failed`.
        version: that holds it; "" while it waits.
        counts: what became of the documents of the batch that it was applied in.
        reason: why it failed.
    """

    state: Literal["waiting", "applied", "visible", "failed"]
    version: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    reason: str = ""


def state_of(root: Path, folder: Path, operation: OperationId, served: Sequence[str]) -> OperationState:
    """How far an operation has come; reads small files.

    Args:
        root: the index root.
        folder: of the log of writes.
        operation: which one.
        served: the live version of each replica.

    Raises:
        QueryError: if nobody accepted it.
    """
    applied = known_state(IndexRoot(root), folder).applied.get(operation.writer, Position())
    if operation.number > applied.number:
        if not has_log(folder, operation):
            raise QueryError(f"no operation {operation} was accepted here")
        return OperationState("waiting")
    outcome = find_outcome(folder, operation)
    if outcome is None:  # its version was published, and what came of it is about to be noted
        current = IndexRoot(root).current()
        return OperationState("visible" if _serve(served, current) else "applied", current)
    if outcome.state == "failed":
        return OperationState("failed", outcome.version, reason=outcome.reason)
    state: Literal["visible", "applied"] = "visible" if _serve(served, outcome.version) else "applied"
    return OperationState(state, outcome.version, outcome.counts)


def _serve(served: Sequence[str], version: str) -> bool:
    """Whether all serve a version or a later one: names of versions sort by when they were made."""
    return bool(served) and all(each >= version for each in served)
