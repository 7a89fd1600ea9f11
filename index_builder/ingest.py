"""`glow ingest`: the loop that turns waiting operations of the write log into versions, until it is stopped.

A version's manifest holds the log positions that it includes, and one rename makes `CURRENT` name it. So a kill at any
moment leaves each operation either applied or waiting. The last operation on each document counts. Only one process
does this at a time.
"""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import typer

from glow.artifact import IndexRoot, RootLock, disk_error
from glow.collection import has_text, parse_document
from glow.commands import command, counted, option, say
from glow.errors import BuildError, BusyError, ConfigError, DiskError, GlowError, InputError, RecordError
from glow.index import MODEL_FOLDER
from glow.ingest import (
    APPLIED,
    INGEST_FOLDER,
    Accepted,
    IngestState,
    OperationId,
    Outcome,
    Position,
    known_state,
    note_outcomes,
    read_accepted,
    remove_applied,
    write_state,
    writers,
)
from glow.schema import FieldSchema
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import UNBOUNDED, Changes, CompactOptions, UpsertOptions, deletion
from glow_index_builder.deltas.upsert import DeltaResult, apply_changes
from glow_index_builder.options import ModelOptions, ThreadOptions, WaitOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.gc import collect


class IngestOptions(ModelOptions, ThreadOptions, WaitOptions):
    """Where writes are stored, and how to apply them."""

    ingest_folder: Path | None = option(
        None, "Directory of the write log; default: .ingest in the index root.", metavar="DIR"
    )
    every_s: float = option(
        1.0, "Seconds between checks for writes.", flag="--poll-interval-s", ge=0.05, le=3600.0
    )
    once: bool = option(False, "Apply waiting writes, then exit.")
    check: bool = option(
        False, "Apply nothing: exit with status 0 if another process applies the log, otherwise with 1."
    )
    batch_documents: int = option(500, "Most documents per version.", ge=1, le=20_000)
    compact_share: float = option(
        0.5,
        "Ratio of the largest delta at which compaction starts.",
        ge=0.01,
        le=1.0,
        flag="--compact-threshold",
    )
    keep: int = option(3, "Number of versions to keep, with the live one.", ge=1)
    keep_deleted_days: float = option(
        7.0, "Days to keep the version before a deletion by filter; 0: none.", ge=0.0, le=3_650.0
    )

    @property
    def folder(self) -> Path:
        """Directory of the write log."""
        return self.ingest_folder or self.index_root / INGEST_FOLDER


@dataclass(slots=True)
class Batch:
    """Operations to apply as one version."""

    accepted: list[Accepted] = field(default_factory=list)  # the operations in the order of acceptance
    changes: Changes = field(default_factory=Changes)  # their combined changes
    filter: Mapping[str, Any] | None = None  # of a deletion by filter, which is always a batch by itself
    means_all: bool = False  # whether that deletion may delete every document
    positions: dict[str, Position] = field(default_factory=dict)  # positions of the writers after this batch

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
            except (RecordError, orjson.JSONEncodeError):
                continue  # accepted while a model with another schema was live
            self.changes.deletes.pop(document.id, None)
            self.changes.patches.pop(document.id, None)
            if has_text(document):
                self.changes.upserts[document.id] = document
        for identifier in operation.ids:
            self.changes.upserts.pop(identifier, None)
            self.changes.patches.pop(identifier, None)
            self.changes.deletes[identifier] = None
        if operation.id:
            # A field of the model was accepted while a model with another schema was live.
            patch = {key: value for key, value in operation.metadata.items() if key not in ("_id", *names)}
            self.changes.patch(operation.id, patch)


def batches(waiting: Iterable[Accepted], names: Sequence[str], most: int) -> Iterable[Batch]:
    """Divides waiting operations into batches; the caller may stop after any."""
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
    if len(changes) <= most:
        return [changes]
    pieces: list[Changes] = []
    for name in ("upserts", "patches", "deletes"):
        items = list(getattr(changes, name).items())
        for start in range(0, len(items), most):
            pieces.append(Changes())
            setattr(pieces[-1], name, dict(items[start : start + most]))
    return pieces


MOST_KEPT = 20
"""Most versions kept at a time because a deletion by filter followed them; `CURRENT` remembers as many."""
COLLECT_EVERY_S = 60.0
CLAIM_WAIT_S = 3.0
"""Used by `is_claimed`, which only checks the lock."""
Tell = Callable[[str], None]


def is_claimed(folder: Path) -> bool:
    """Whether a process applies the log of a directory."""
    if not folder.is_dir():
        return False
    try:
        with RootLock(folder).hold(0.0):
            return False
    except BusyError:
        return True


class Ingester:
    """Applies the log of one index root."""

    def __init__(self, options: IngestOptions, stages: Stages, tell: Tell = lambda line: None) -> None:
        self._options, self._stages, self._tell = options, stages, tell
        self._root = IndexRoot(options.index_root)
        self._folder = options.folder
        self._collected = 0.0
        self._delta_share = 0.0
        self._unnoted: dict[OperationId, Outcome] = {}
        self._root.manifest(self._root.current())  # reports a bad root at once

    def claim(self) -> AbstractContextManager[None]:
        """Locks this log for a block."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return RootLock(self._folder).hold(CLAIM_WAIT_S)

    def run(self, ended: threading.Event) -> None:
        """Applies operations as they arrive, until the event is set."""
        while not ended.is_set():
            try:
                applied = self.apply_waiting(ended)
            # Another command or a full disk: both are temporary.
            except (BusyError, BuildError, DiskError) as error:
                self._tell(f"waits: {error}")
                applied = 0
            if not applied:
                ended.wait(self._options.every_s)

    def apply_waiting(self, ended: threading.Event | None = None) -> int:
        """Applies the waiting operations; returns their number."""
        count = 0
        try:
            self._note_outcomes({})
            accepted = read_accepted(self._folder, known_state(self._root, self._folder))
            for batch in batches(accepted, self._field_names(), self._options.batch_documents):
                self._apply(batch)
                count += len(batch.accepted)
                if ended is not None and ended.is_set():
                    break
            self._tidy()
        except OSError as error:
            raise disk_error(self._folder, error) from error
        return count

    def _field_names(self) -> Sequence[str]:
        """The fields that the live version's model reads."""
        live = self._root.folder(self._root.current())
        return FieldSchema.load(live / MODEL_FOLDER / "schema.json").names

    def _apply(self, batch: Batch) -> None:
        """Applies a batch; if that fails, applies its operations one by one, so that only the bad ones fail."""
        damaged = {
            each.id: self._failure(each.id, each.fault) for each in batch.accepted if each.operation is None
        }
        if damaged:  # recorded first: once their positions are published, they would count as applied
            self._note_outcomes(damaged)
        try:
            outcome = self._publish(batch)
        except ConfigError:  # a fault of this command, not of an operation, so no operation may fail by it
            raise
        except InputError as error:
            if len(batch.accepted) > 1:
                for accepted in batch.accepted:
                    one = Batch()
                    one.add(accepted, self._field_names())
                    self._apply(one)
                return
            outcome = self._failure(batch.accepted[0].id, str(error))
        intact = [each.id for each in batch.accepted if each.id not in damaged]
        self._note_outcomes({each: outcome.model_copy(update={"id": str(each)}) for each in intact})
        write_state(self._folder, self._after(batch))

    def _failure(self, name: OperationId, reason: str) -> Outcome:
        return Outcome(id=str(name), state="failed", version=self._root.current(), reason=reason)

    def _publish(self, batch: Batch) -> Outcome:
        """Applies a batch as one version, or as several if it is too large; the last version has its positions.

        A deletion by filter is always one version, so that the previous version stays restorable.
        """
        positions = {APPLIED: self._after(batch).model_dump()["applied"]}
        if batch.filter is not None:
            before = self._root.current()
            if days := self._options.keep_deleted_days:
                self._root.pin(before, until=datetime.now(UTC) + timedelta(days=days), most=MOST_KEPT)
            changes = deletion(self._root, batch.filter, means_all=batch.means_all)
            counts = self._change(changes, positions, UNBOUNDED)
            version = self._root.current()
            return Outcome(id="", state="applied", version=version, before=before, counts=counts)
        total: Counter[str] = Counter()
        pieces = pieces_of(batch.changes, self._options.batch_documents)
        for place, piece in enumerate(pieces, 1):
            total.update(self._change(piece, positions if place == len(pieces) else {}))
        if self._delta_share > self._options.compact_share:
            self._compact()
        return Outcome(id="", state="applied", version=self._root.current(), counts=dict(total))

    def _change(
        self, changes: Changes, parameters: dict[str, Any], most: int | None = None
    ) -> dict[str, int]:
        """Publishes one version; returns the outcome for its documents.

        `most` bounds the delta; None bounds it as `glow upsert` does, with compaction above that.
        """
        try:
            result = self._apply_changes(changes, parameters, most)
        except ConfigError:
            raise
        except InputError:  # the delta has no capacity left
            if most is not None:
                raise
            self._compact()
            result = self._apply_changes(changes, parameters, UNBOUNDED)
        counts = dict(result.report["counts"])
        documents = counted(counts.pop("documents"), "document")
        for name in ("encoded", "reused"):
            counts.pop(name, None)
        if result.version is not None:
            shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            self._tell(f"{result.version}: {shown}; {documents}")
        size = result.report["delta"]
        self._delta_share = (size["documents"] + size["tombstones"]) / size["most"]
        return counts

    def _apply_changes(self, changes: Changes, parameters: dict[str, Any], most: int | None) -> DeltaResult:
        shared = {name: getattr(self._options, name) for name in ("index_root", "model", "threads", "wait_s")}
        options = UpsertOptions(source="-", **shared)
        if most is not None:
            options = options.model_copy(update={"max_documents": most, "max_share": float(most)})
        return apply_changes(options, changes, parameters, self._stages)

    def _compact(self) -> None:
        """Compacts, into a version with the same positions; if that fails, the applied operations stay applied."""
        options = CompactOptions(
            index_root=self._options.index_root, threads=self._options.threads, wait_s=self._options.wait_s
        )
        try:
            report = compact(options, self._stages)
        except (BusyError, BuildError) as error:
            self._tell(f"not compacted: {error}")
            return
        if report["status"] != "unchanged":
            self._tell(f"{report['version']}: compacted")

    def _after(self, batch: Batch) -> IngestState:
        """The log positions after a batch, without writers whose files were removed."""
        state = known_state(self._root, self._folder).with_later(IngestState(applied=batch.positions))
        return state.only(writers(self._folder))

    def _note_outcomes(self, outcomes: Mapping[OperationId, Outcome]) -> None:
        """Records the outcomes of operations; those that cannot be written now are written with the next ones."""
        self._unnoted |= outcomes
        note_outcomes(self._folder, self._unnoted)
        self._unnoted.clear()

    def _tidy(self) -> None:
        now = time.time()
        if now - self._collected < COLLECT_EVERY_S:
            return
        self._collected = now
        remove_applied(self._folder, known_state(self._root, self._folder), now)
        try:
            collect(self._root, self._options.keep)
        except GlowError as error:
            self._tell(f"old versions stay: {error}")


@command(IngestOptions)
def ingest_command(options: IngestOptions) -> None:
    """Applies writes that services accepted (POST /documents) to the index, until stopped."""
    if options.check:
        if not is_claimed(options.folder):
            say(f"no process applies the log in {options.folder}")
            raise typer.Exit(1)
        return
    ingester = Ingester(options, Stages(sys.stderr), say)
    with ingester.claim():
        if options.once:
            say(f"{counted(ingester.apply_waiting(), 'operation')} applied")
            return
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        ingester.run(ended)
