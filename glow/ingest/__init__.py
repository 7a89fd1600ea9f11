"""Accepted writes that are not in the index yet: a durable log in the index root, and how far it was applied."""

from glow.ingest.log import INGEST_FOLDER, IngestLog, LogFullError
from glow.ingest.reader import Accepted, has_log, read_accepted, remove_applied, waiting_bytes, writers
from glow.ingest.records import Kind, LogBusyError, LogClock, OperationId, merged, parse_operation_id
from glow.ingest.state import (
    APPLIED,
    IngestState,
    Outcome,
    Position,
    find_outcome,
    known_state,
    note_outcomes,
    published_state,
    read_state,
    write_state,
)

__all__ = [
    "APPLIED", "INGEST_FOLDER", "Accepted", "IngestLog", "IngestState", "Kind", "LogBusyError", "LogClock", "LogFullError", "OperationId", "Outcome",
    "Position", "find_outcome", "has_log", "known_state", "merged", "note_outcomes", "parse_operation_id", "published_state", "read_accepted",
    "read_state", "remove_applied", "waiting_bytes", "write_state", "writers",
]  # fmt: skip
