"""Vectors of a version in a server: one collection for each build, whose name outlives an import that is killed."""

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

__all__ = ["VectorStore"]

NAME_FILE = "collection.txt"


class VectorStore:
    """Where a build imports its vectors.

    Args:
        address: of the server.
        notes: folder that stays when the build ends before its time; made if need be.
        insert: puts rows there in other processes; None: this one does.
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
        """Imports the vectors; a call that ended before its time is gone on with.

        Args:
            folder: gets `vectors.json`.
            vectors: float32 [N, D].
            kind: of the index.
            binding: hashes of model and term table.
            columns: what can be filtered by.
            passages: whose rows the vectors are; None: those of documents.
            advance: told how many are imported.

        Raises:
            StoreError: if the server does not answer.
        """
        writer = CollectionWriter(connect(self._address), self._prefix(), kind, FilterFields(columns))
        documents = documents_of(passages)
        header = writer.write(self._notes, vectors, *binding, documents, advance, self._insert)
        if self._notes != folder:
            header.save(folder / STORE_FILE)
        return header

    def forget(self) -> None:
        """Removes the name, if the notes lie in the version."""
        (self._notes / NAME_FILE).unlink(missing_ok=True)

    def _prefix(self) -> str:
        """A name that no other build has, though its vectors be the same: each version owns its collection."""
        file = self._notes / NAME_FILE
        if not file.exists():
            file.write_text(f"glow_{secrets.token_hex(6)}", encoding="ascii")
        return file.read_text(encoding="ascii")
