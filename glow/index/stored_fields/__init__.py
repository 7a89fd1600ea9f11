"""Stored documents: fields and metadata, by row and by id."""

from glow.index.stored_fields.component import DOCUMENTS_FILE, STORED_FIELDS
from glow.index.stored_fields.store import DocumentStore, DocumentWriter, not_found
from glow.index.stored_fields.view import DocumentsView

__all__ = [
    "DOCUMENTS_FILE",
    "STORED_FIELDS",
    "DocumentStore",
    "DocumentWriter",
    "DocumentsView",
    "not_found",
]
