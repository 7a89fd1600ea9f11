"""Writes over HTTP: checked, put into the durable log of the index root, followed until they are visible. `glow ingest` applies them."""

from glow_service.writes.accept import AcceptedDocuments, Reject, read_documents, read_ids, read_lines
from glow_service.writes.follow import Follower, OperationState
from glow_service.writes.replicas import Replicas

__all__ = [
    "AcceptedDocuments",
    "Follower",
    "OperationState",
    "Reject",
    "Replicas",
    "read_documents",
    "read_ids",
    "read_lines",
]
