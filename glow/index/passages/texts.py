"""The texts for the document tower: documents, or their passages."""

from collections.abc import Iterator
from pathlib import Path

from glow.index.passages.component import PASSAGES
from glow.index.passages.map import PASSAGES_FOLDER, PassageMap
from glow.index.segment import Segment
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.text import passage_document

__all__ = ["TextsOfDocuments", "cuts_of", "texts_of"]


class TextsOfDocuments:
    """The texts of one document at a time; safe to use from many threads.

    Args:
        passages: map of passages; None: documents are not split.
    """

    def __init__(self, passages: PassageMap | None = None) -> None:
        self._passages = passages

    @classmethod
    def open(cls, cuts: Path | None) -> "TextsOfDocuments":
        """Opens it with a directory of passages; None: documents are not split.

        Raises:
            FormatError: as `PassageMap.open`.
        """
        return cls(None if cuts is None else PassageMap.open(cuts))

    def of(self, document: Document, row: int) -> Iterator[Document]:
        """Yields the texts of a document, given its row, as documents."""
        passages = self._passages
        if passages is None:
            yield document
            return
        for place in range(int(passages.first[row]), int(passages.first[row + 1])):
            start, end = int(passages.starts[place]), int(passages.ends[place])
            yield passage_document(document, passages.header.field, start, end)


def cuts_of(made: Segment) -> Path | None:
    """The passages directory of an unfinished segment; None: documents are not split."""
    return None if made.get(PASSAGES) is None else made.path(PASSAGES_FOLDER)


def texts_of(made: Segment) -> Iterator[Document]:
    """Yields every text of an unfinished segment, in the order of rows, while reading from disk."""
    texts = TextsOfDocuments(made.get(PASSAGES))
    for row, document in enumerate(made[STORED_FIELDS].scan()):
        yield from texts.of(document, row)
