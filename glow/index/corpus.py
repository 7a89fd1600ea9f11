"""The documents of a build, as its components see them."""

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
"""Imports rows `start` to `stop` into a collection; can be pickled."""
ImportRows = Callable[[str, int, int], Iterator[int]]
"""Imports rows `start` to `stop` into a collection; yields up to which row all are imported, ascending, finally `stop`."""


class Corpus(Protocol):
    """The documents of a build or an upsert, without those that could not be encoded."""

    @property
    def model(self) -> Model:
        """The model that encodes."""
        ...

    @property
    def terms(self) -> TermTable:
        """The index's own term statistics."""
        ...

    @property
    def counted(self) -> TermTable:
        """Word statistics of these documents."""
        ...

    @property
    def counted_terms(self) -> TermTable:
        """Term statistics of these documents by the index's analyzer; `counted` if it keeps words as they are."""
        ...

    @property
    def encoded(self) -> Encoded:
        """Results of the only pass of the document tower; not available in `prepare`."""
        ...

    @property
    def made(self) -> Segment:
        """The earlier components, open; this component writes into its directory."""
        ...

    @property
    def notes(self) -> Path:
        """A directory that survives a killed build, for a component that resumes by itself."""
        ...

    @property
    def threads(self) -> int:
        """Number of threads to use, >= 1."""
        ...

    @property
    def spread(self) -> Callable[[RangeTask], ImportRows] | None:
        """Runs a task over many rows on other machines; None: this process runs it."""
        ...

    def documents(self) -> Iterator[Document]:
        """All documents, in the order of rows; read from disk each time."""
        ...

    def advance(self, count: int) -> None:
        """Reports the number of finished rows."""
        ...
