"""Turns operations of the write log into changes of an index; the last operation on each document counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from glow.collection import has_text, parse_document
from glow.errors import RecordError
from glow.ingest import Accepted, IngestState, Position
from glow_index_builder.deltas import Changes

__all__ = ["Batch", "batches", "pieces_of"]


@dataclass(slots=True)
class Batch:
    """Operations to apply as one version.

    Attributes:
        accepted: the operations in the order of acceptance.
        changes: their combined changes.
        filter: of a deletion by filter, which is always a batch by itself; otherwise None.
        means_all: whether that deletion may delete every document.
        positions: positions of the writers after this batch.
    """

    accepted: list[Accepted] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    filter: Mapping[str, Any] | None = None
    means_all: bool = False
    positions: dict[str, Position] = field(default_factory=dict)

    def add(self, accepted: Accepted, names: Sequence[str]) -> None:
        """Adds an operation."""
        self.accepted.append(accepted)
        self.positions[accepted.id.writer] = accepted.position
        operation = accepted.operation
        if operation is None:
            return
        self.filter, self.means_all = operation.filter, operation.all
        for value in operation.documents:
            try:
                document = parse_document(orjson.dumps(value), names)
            except (
                RecordError,
                orjson.JSONEncodeError,
            ):  # accepted while a model with another schema was live
                continue
            self.changes.deletes.pop(document.id, None)
            if has_text(document):
                self.changes.upserts[document.id] = document
        for identifier in operation.ids:
            self.changes.upserts.pop(identifier, None)
            self.changes.deletes[identifier] = None

    def after(self, state: IngestState) -> IngestState:
        """The positions in the log after this batch."""
        return state.with_later(IngestState(applied=self.positions))


def batches(waiting: Iterable[Accepted], names: Sequence[str], most: int) -> Iterable[Batch]:
    """Divides waiting operations into batches; the caller may stop after any.

    Args:
        waiting: operations in the order of acceptance.
        names: the fields that the model reads.
        most: most documents and ids per batch, unless a single operation has more.
    """
    batch = Batch()
    for accepted in waiting:
        operation = accepted.operation
        size = 0 if operation is None else operation.size
        by_filter = operation is not None and operation.filter is not None
        if batch.accepted and (by_filter or len(batch.changes) + size > most):
            yield batch
            batch = Batch()
        batch.add(accepted, names)
        if by_filter:
            yield batch
            batch = Batch()
    if batch.accepted:
        yield batch


def pieces_of(changes: Changes, most: int) -> list[Changes]:
    """Splits changes into pieces of at most `most` documents and ids; at least one piece, which may be empty."""
    upserts, deletes = list(changes.upserts.items()), list(changes.deletes)
    pieces = [Changes(upserts=dict(upserts[at : at + most])) for at in range(0, len(upserts), most)]
    pieces += [Changes(deletes=dict.fromkeys(deletes[at : at + most])) for at in range(0, len(deletes), most)]
    return [changes] if len(changes) <= most else pieces
