"""Writes over HTTP: checks, the durable write log, and the state of writes; `glow ingest` applies them."""

from glow_service.writes.accept import AcceptedDocuments, read_documents, read_ids, read_lines
from glow_service.writes.follow import Follower, OperationState
from glow_service.writes.replicas import Replicas

__all__ = [
    "AcceptedDocuments",
    "Follower",
    "OperationState",
    "Replicas",
    "read_documents",
    "read_ids",
    "read_lines",
]
