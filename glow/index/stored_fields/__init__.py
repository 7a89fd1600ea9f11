"""Stored documents: fields and metadata, by row and by id."""

from glow.index.stored_fields.component import DOCUMENTS_FILE, STORED_FIELDS
from glow.index.stored_fields.store import DocumentStore, DocumentWriter, not_found, parse_document
from glow.index.stored_fields.view import DocumentsView, StoredDocuments

__all__ = [
    "DOCUMENTS_FILE",
    "STORED_FIELDS",
    "DocumentStore",
    "DocumentWriter",
    "DocumentsView",
    "StoredDocuments",
    "not_found",
    "parse_document",
]
