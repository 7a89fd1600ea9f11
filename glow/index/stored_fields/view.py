"""The interface of stored documents for searches, over one or two segments."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.records import Document

__all__ = ["DocumentsView", "StoredDocuments"]


class DocumentsView(Protocol):
    """Stored documents for searches; `DocumentStore` describes each method."""

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class
    def get(self, document_id: str) -> Document: ...  # noqa: D102
    def find(self, document_id: str) -> int | None: ...  # noqa: D102
    def find_all(self, ids: Sequence[str]) -> list[int | None]: ...  # noqa: D102
    def rows(self, rows: Sequence[int]) -> list[Document]: ...  # noqa: D102
    def ids(self, rows: Sequence[int]) -> list[str]: ...  # noqa: D102
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...  # noqa: D102
    def by_id(self) -> Iterator[tuple[str, int, str, str]]: ...  # noqa: D102


class StoredDocuments(DocumentsView, Protocol):
    """The documents of one segment, for joining and additions; `DocumentStore` describes each method."""

    def rows_before(self, ids: Sequence[str]) -> list[int | None]: ...  # noqa: D102 - see the class
    def metadata(self) -> Iterator[dict[str, Any]]: ...  # noqa: D102
    def id_ranks(self) -> NDArray[np.uint32]: ...  # noqa: D102
