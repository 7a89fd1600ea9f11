"""Stored documents: fields and metadata, by row and by id."""

from glow.index.stored_fields.store import DocumentStore, DocumentWriter, not_found

__all__ = ["DocumentStore", "DocumentWriter", "not_found"]
