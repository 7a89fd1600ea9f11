"""What the document tower reads: documents, or the passages that they are cut into. Nothing else here knows that documents may be cut."""

from collections.abc import Iterator
from pathlib import Path

from glow.index import Segment
from glow.index.passages import PASSAGES, PASSAGES_FOLDER, PassageMap, passages_of
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.text import passage_document

__all__ = ["passages_folder", "texts_of", "texts_of_document"]


def passages_folder(made: Segment) -> Path | None:
    """Where it lies how documents are cut; None: they stay whole."""
    return None if made.get(PASSAGES) is None else made.path(PASSAGES_FOLDER)


def texts_of(made: Segment) -> Iterator[Document]:
    """Every text of documents in the making, in the order of rows; read from disk as they are needed."""
    documents, passages = made[STORED_FIELDS].scan(), made.get(PASSAGES)
    return documents if passages is None else passages_of(documents, passages)


def texts_of_document(document: Document, row: int, passages: PassageMap | None) -> Iterator[Document]:
    """The texts of one document, as documents.

    Args:
        document: the document.
        row: its row in the store.
        passages: where all are cut; None: they stay whole.
    """
    if passages is None:
        yield document
        return
    for place in range(int(passages.first[row]), int(passages.first[row + 1])):
        start, end = int(passages.starts[place]), int(passages.ends[place])
        yield passage_document(document, passages.header.field, start, end)
