"""A range of rows imported by a process that knows nothing else of the build: all it needs is read from a shared disk."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import Columns
from glow.index.encoding import VectorRows
from glow.index.milvus.connection import connect
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.write import insert_rows
from glow.index.passages import PassageMap

__all__ = ["ImportRange", "documents_of"]


@dataclass(frozen=True, slots=True)
class ImportRange:
    """Puts any range of rows into a collection; a `RangeTask`.

    Attributes:
        address: of the server; its token is in the environment of whichever process this runs in.
        vectors: of all rows, read from a shared disk.
        columns: folder whose `columns/` describe the documents.
        documents: of them.
        passages: folder of the map of passages; None: rows are documents.
    """

    address: str
    vectors: VectorRows
    columns: Path
    documents: int
    passages: Path | None

    def __call__(self, collection: str, start: int, stop: int) -> None:
        """Imports rows `start` to `stop`; what is there already is written again.

        Raises:
            StoreError: if the server does not answer.
            FormatError: if columns or passages are damaged.
        """
        passages = None if self.passages is None else PassageMap.open(self.passages)
        fields = FilterFields(Columns.open(self.columns, self.documents))
        server = connect(self.address)
        insert_rows(server, collection, self.vectors, start, stop, fields, documents_of(passages))


def documents_of(passages: PassageMap | None) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Rows int64 [m] -> the document of each; without passages the rows themselves."""
    return lambda rows: rows if passages is None else passages.documents[rows].astype(np.int64)
