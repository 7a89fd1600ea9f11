"""The interface of stored documents for searches, over one or two segments."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from glow.records import Document

__all__ = ["DocumentsView"]


class DocumentsView(Protocol):
    """Stored documents for searches; `DocumentStore` describes each method."""

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class
    def get(self, document_id: str) -> Document: ...  # noqa: D102
    def find(self, document_id: str) -> int | None: ...  # noqa: D102
    def rows(self, rows: Sequence[int]) -> list[Document]: ...  # noqa: D102
    def ids(self, rows: Sequence[int]) -> list[str]: ...  # noqa: D102
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...  # noqa: D102
    def by_id(self) -> Iterator[tuple[str, int, str, str]]: ...  # noqa: D102
