"""Imports a range of rows in a separate process, with only inputs from a shared disk."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import Columns
from glow.index.encoding import VectorRows
from glow.index.milvus.connection import connect
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.write import insert_rows, vector_values
from glow.index.passages import PassageMap

__all__ = ["ImportRange", "documents_of"]


@dataclass(frozen=True, slots=True)
class ImportRange:
    """Imports any range of rows into a collection; a `RangeTask`.

    Attributes:
        address: of the server; the token is in the environment of the process that runs this.
        vectors: all of them, on a shared disk.
        columns: directory whose `columns/` describe the documents.
        documents: their number.
        passages: directory of the map of passages; None: rows are documents.
    """

    address: str
    vectors: VectorRows
    columns: Path
    documents: int
    passages: Path | None

    def __call__(self, collection: str, start: int, stop: int) -> None:
        """Imports rows `start` to `stop`; existing ones are overwritten.

        Raises:
            StoreError: if the server does not respond.
            FormatError: if columns or passages are damaged.
        """
        passages = None if self.passages is None else PassageMap.open(self.passages)
        fields = FilterFields(Columns.open(self.columns, self.documents))
        server = connect(self.address)
        values = vector_values(self.vectors, fields, documents_of(passages))
        insert_rows(server, collection, values, start, stop)


def documents_of(passages: PassageMap | None) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Rows int64 [m] -> the document of each; without passages the rows themselves."""
    return lambda rows: rows if passages is None else passages.documents[rows].astype(np.int64)
