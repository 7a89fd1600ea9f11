"""What searches ask of stored documents, whether one segment holds them or two."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from glow.records import Document

__all__ = ["DocumentsView"]


class DocumentsView(Protocol):
    """What searches ask of stored documents; `DocumentStore` describes each of it."""

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class
    def get(self, document_id: str) -> Document: ...  # noqa: D102
    def find(self, document_id: str) -> int | None: ...  # noqa: D102
    def rows(self, rows: Sequence[int]) -> list[Document]: ...  # noqa: D102
    def ids(self, rows: Sequence[int]) -> list[str]: ...  # noqa: D102
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...  # noqa: D102
    def by_id(self) -> Iterator[tuple[str, int, str, str]]: ...  # noqa: D102
