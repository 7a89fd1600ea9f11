"""Columns of made documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glow.index.columns import Columns, build_columns
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document


def columns_of(rows: Sequence[Mapping[str, Any]], folder: Path) -> Columns:
    """Columns of documents with this metadata, written into a folder and opened."""
    folder.mkdir(exist_ok=True)
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row, metadata in enumerate(rows):
            writer.add(Document(f"d{row}", {"title": ("bees",)}, dict(metadata)))
    build_columns(DocumentStore(folder / "documents.sqlite"), folder)
    return Columns.open(folder, len(rows))
