"""The vectors of a version in a server: one collection per build, whose name survives a killed import."""

import secrets
from collections.abc import Callable
from pathlib import Path

from glow.index.columns import Columns
from glow.index.encoding import VectorRows
from glow.index.milvus.connection import connect
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import STORE_FILE, StoreHeader
from glow.index.milvus.import_range import documents_of
from glow.index.milvus.write import CollectionWriter, Insert
from glow.index.passages import PassageMap
from glow.index.vector_search import IndexKind

__all__ = ["VectorStore", "collection_prefix"]

NAME_FILE = "collection.txt"


class VectorStore:
    """Imports the vectors of a build.

    Args:
        address: of the server.
        notes: directory that survives a killed build; created if missing.
        insert: imports rows in other processes; None: this process imports.
    """

    def __init__(self, address: str, notes: Path, insert: Insert | None = None) -> None:
        self._address = address
        self._notes = notes
        self._insert = insert
        notes.mkdir(exist_ok=True)

    def write(
        self,
        folder: Path,
        vectors: VectorRows,
        kind: IndexKind,
        binding: tuple[str, str],
        columns: Columns,
        passages: PassageMap | None,
        advance: Callable[[int], None] = lambda _: None,
    ) -> StoreHeader:
        """Imports the vectors; a call after a killed one resumes it.

        Args:
            folder: directory for `vectors.json`.
            vectors: float32 [N, D].
            kind: of the index.
            binding: hashes of model and term statistics.
            columns: metadata for filters.
            passages: if the vectors are of passages; None: of documents.
            advance: called with the number of imported vectors.

        Raises:
            StoreError: if the server does not respond.
        """
        prefix = collection_prefix(self._notes)
        writer = CollectionWriter(connect(self._address), prefix, kind, FilterFields(columns))
        documents = documents_of(passages)
        header = writer.write(self._notes, vectors, *binding, documents, advance, self._insert)
        if self._notes != folder:
            header.save(folder / STORE_FILE)
        return header

    def forget(self) -> None:
        """Removes the name if it is stored in the version."""
        (self._notes / NAME_FILE).unlink(missing_ok=True)


def collection_prefix(notes: Path) -> str:
    """A name prefix unique to this build, even for equal vectors: each version owns its collections."""
    file = notes / NAME_FILE
    if not file.exists():
        file.write_text(f"glow_{secrets.token_hex(6)}", encoding="ascii")
    return file.read_text(encoding="ascii")
