"""Documents that the components of an index are built of, as components see them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from glow.index.encoding import Encoded
from glow.index.segment import Segment
from glow.records import Document
from glow.runtime import Model
from glow.text import TermTable

__all__ = ["Corpus", "ImportRows", "RangeTask"]

RangeTask = Callable[[str, int, int], None]
"""Puts rows `start` to `stop` into a collection; can be pickled."""
ImportRows = Callable[[str, int, int], Iterator[int]]
"""Puts rows `start` to `stop` into a collection; yields up to where all are there, ascending, `stop` at last."""


class Corpus(Protocol):
    """Documents that components are built of: of a build, without documents that could not be encoded, or of an upsert."""

    @property
    def model(self) -> Model:
        """That encodes."""
        ...

    @property
    def terms(self) -> TermTable:
        """The index's own table."""
        ...

    @property
    def counted(self) -> TermTable:
        """Of the words of these documents."""
        ...

    @property
    def counted_terms(self) -> TermTable:
        """Of the terms that the index's analyzer makes of these documents' words; `counted` if it leaves words as they are."""
        ...

    @property
    def encoded(self) -> Encoded:
        """What came of the one pass of the document tower; not there while components prepare it."""
        ...

    @property
    def made(self) -> Segment:
        """What the components before this one have made, open; its folder is where this one writes."""
        ...

    @property
    def notes(self) -> Path:
        """A folder that outlives a build that is killed, for a component that goes on by itself."""
        ...

    @property
    def threads(self) -> int:
        """That work may be done on, >= 1."""
        ...

    @property
    def spread(self) -> Callable[[RangeTask], ImportRows] | None:
        """Does a task over many rows on other machines; None: this process does it."""
        ...

    def documents(self) -> Iterator[Document]:
        """All, in the order of rows; read from disk each time."""
        ...

    def advance(self, count: int) -> None:
        """Told how many rows are done."""
        ...
