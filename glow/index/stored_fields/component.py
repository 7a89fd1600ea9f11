"""Stored documents as a component of an index."""

from collections.abc import Sequence
from typing import Any

from glow.errors import MismatchError
from glow.index.component import Asked, Component, ComponentOptions, Rules
from glow.index.corpus import Corpus
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.index.stored_fields.joined import SegmentedDocuments
from glow.index.stored_fields.store import DocumentStore, DocumentWriter
from glow.index.stored_fields.view import DocumentsView, StoredDocuments

__all__ = ["DOCUMENTS_FILE", "STORED_FIELDS", "StoredFields"]

DOCUMENTS_FILE = "documents.sqlite"


class StoredFields(Component[StoredDocuments, DocumentsView, Rules, ComponentOptions]):
    """Fields and metadata of every document; other components are built from them, so this one comes first."""

    name = "stored_fields"
    label = "stored documents"
    stage = "documents"
    paths = (DOCUMENTS_FILE,)

    def rules(self, options: ComponentOptions, asked: Asked) -> Rules:
        """Every index has them."""
        return Rules()

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules:
        """Every index has them."""
        return Rules()

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """Does nothing: reading the input has written the file."""

    def merge(self, kept: Sequence[MergeSource], rules: Rules, made: Segment) -> None:
        """Copies the live documents, in the order of the new rows."""
        with DocumentWriter(made.folder / DOCUMENTS_FILE) as writer:
            for each in kept:
                documents = each.segment[self].scan()
                for stays, document in zip(each.live.tolist(), documents, strict=True):
                    if stays:
                        writer.add(document)

    def counts(self, reader: DocumentsView) -> dict[str, int]:
        """Number of documents."""
        return {"documents": reader.count}

    def open(self, segment: Segment) -> DocumentStore:
        """Opens the file, which every segment has."""
        segment.require(DOCUMENTS_FILE)
        documents = DocumentStore(segment.path(DOCUMENTS_FILE))
        expected = segment.rows.documents
        if documents.count != expected and segment.below:
            raise MismatchError(
                f"{segment.below} holds {documents.count} stored documents, "
                f"{segment.below}delta.json says {expected} documents; {segment.remedy}"
            )
        if documents.count != expected:
            raise MismatchError(
                f"index {segment.name}: {documents.count} stored documents, {expected} in the manifest; {segment.remedy}"
            )
        return documents

    def alone(self, reader: StoredDocuments, segment: Segment) -> DocumentsView:
        """The store itself."""
        return reader

    def join(self, both: BaseAndDelta[StoredDocuments]) -> DocumentsView:
        """Documents of the delta replace those of the base with the same id."""
        return SegmentedDocuments(both)

    def info(self, reader: DocumentsView | None) -> dict[str, Any]:
        """Number of live documents."""
        return {"documents": 0 if reader is None else reader.count}


STORED_FIELDS = StoredFields()
