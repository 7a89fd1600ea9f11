"""How far the log was applied, and the outcome of each operation.

A version's manifest holds the positions of the operations in it, so one rename publishes both. `state.json` holds the
positions that no version has: of operations that changed nothing, and after a rollback.
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from glow.artifact import IndexRoot, replace_file
from glow.errors import ArtifactError
from glow.ingest.records import OperationId
from glow.options import StrictModel
from glow.storage import append_whole, end_last_line

STATE_FILE = "state.json"
"""Positions of applied operations that the live version's manifest lacks."""
OUTCOMES_FOLDER = "outcomes"
"""Outcomes of applied operations, for `GET /operations/{id}`."""
APPLIED = "ingested"
"""The manifest's parameter with the positions."""


class Position(StrictModel):
    """Position in a writer's file: how many operations were applied, and the byte where the next one begins."""

    number: int = Field(default=0, ge=0)
    offset: int = Field(default=0, ge=0)


class IngestState(StrictModel):
    """Writer -> how far its file was applied."""

    applied: dict[str, Position] = Field(default_factory=dict)

    def with_later(self, other: "IngestState") -> "IngestState":
        """The later position of each writer, from both states."""
        applied = dict(self.applied)
        for writer, position in other.applied.items():
            if position.number > applied.get(writer, Position()).number:
                applied[writer] = position
        return IngestState(applied=applied)

    def only(self, writers: Collection[str]) -> "IngestState":
        """The positions of some writers; a writer without a file needs none."""
        return IngestState(applied={name: each for name, each in self.applied.items() if name in writers})


class Outcome(StrictModel):
    """Outcome of an operation."""

    id: str
    state: Literal["applied", "failed"]  # `applied`, or `failed` if none of it was applied
    version: str  # that contains it; if nothing changed, the version that was live then
    before: str = ""  # before a deletion by filter: the version to which `glow rollback` returns
    # documents `new`, `replaced`, `deleted`, `unchanged`, `unknown` of its batch
    counts: dict[str, int] = Field(default_factory=dict)
    reason: str = ""  # why it failed


def read_state(folder: Path) -> IngestState:
    """Contents of `state.json`; empty if the file is missing."""
    try:
        return IngestState.model_validate_json((folder / STATE_FILE).read_bytes())
    # A damaged file is as none: it is replaced in one step, so something else wrote it, and manifests have the positions.
    except (OSError, ValidationError):
        return IngestState()


def known_state(root: IndexRoot, folder: Path) -> IngestState:
    """How far the log was applied, by the live version and by `state.json`."""
    state = read_state(folder)
    try:
        return state.with_later(published_state(root, root.current()))
    except ArtifactError:
        return state


def published_state(root: IndexRoot, version: str) -> IngestState:
    """How far the log was applied, by a version's manifest; empty if it does not say."""
    try:
        return IngestState.model_validate({"applied": root.manifest(version).parameters.get(APPLIED, {})})
    except ValidationError:
        return IngestState()


def write_state(folder: Path, state: IngestState) -> None:
    """Writes `state.json` in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / STATE_FILE, state.model_dump_json().encode())


def note_outcomes(folder: Path, outcomes: Mapping[OperationId, Outcome]) -> None:
    """Adds outcomes to their writers' files: for each writer all or none."""
    target = folder / OUTCOMES_FOLDER
    target.mkdir(parents=True, exist_ok=True)
    writers: dict[str, list[Outcome]] = {}
    for name, outcome in outcomes.items():
        writers.setdefault(name.writer, []).append(outcome)
    for writer, lines in writers.items():
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(target / f"{writer}.jsonl", flags, 0o644)
        try:
            end_last_line(descriptor)
            append_whole(descriptor, "".join(f"{each.model_dump_json()}\n" for each in lines).encode())
        finally:
            os.close(descriptor)


def find_outcome(folder: Path, operation: OperationId) -> Outcome | None:
    """Outcome of an operation; None if it waits or its outcome is gone. A damaged line is ignored."""
    try:
        data = (folder / OUTCOMES_FOLDER / f"{operation.writer}.jsonl").read_bytes()
    except FileNotFoundError:
        return None
    begin = b'{"id":%s,' % json.dumps(str(operation)).encode()
    end = len(data)
    while (start := data.rfind(begin, 0, end)) >= 0:
        stop = data.find(b"\n", start)
        try:
            return Outcome.model_validate_json(data[start : stop if stop >= 0 else len(data)])
        except ValidationError:
            end = start
    return None
