"""Files of a version that name its collections, and how to verify them."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.index.vector_search import IndexKind
from glow.options import StrictModel
from glow.storage import read_header

__all__ = [
    "BY_ID_FILE", "ROW_FIELD", "STORED_FOLDER", "STORED_HEADER", "STORE_FILE", "STORE_INDEXES", "VECTOR_FIELD", "StoreHeader", "StoredHeader",
    "StoredRows", "collections_of", "read_store_header", "read_stored_header", "sample_hash", "sampled_rows",
]  # fmt: skip

STORE_FILE = "vectors.json"
STORED_FOLDER, STORED_HEADER, BY_ID_FILE = "store", "store.json", "by-id.npy"
"""Directory of a version whose other components are in collections: their names, and the rows in the order of ids, uint32 [n]."""
CollectionName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,254}$")]
ROW_FIELD, VECTOR_FIELD = "row", "vector"
STORE_INDEXES: dict[IndexKind, tuple[str, dict[str, int]]] = {
    "flat": ("FLAT", {}),
    "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}),
    "ivf-pq": ("IVF_SQ8", {}),
}
"""Milvus' index for each kind; `IVF` gets as many inverted lists as in GLOW."""
SAMPLED = 100


class StoredRows(StrictModel):
    """A collection with rows of components.

    Attributes:
        collection: its name; its end, a hash of model, term statistics and rows, ties it to a version.
        per: unit of its rows.
        components: that are in it.
        rows: their number.
        text_bytes: size of the largest stored document.
        sample: SHA-256 of the values of `sampled_rows`.
        filters: as `StoreHeader.fields`.
    """

    collection: CollectionName
    per: Literal["document", "vector"]
    components: tuple[str, ...]
    rows: Annotated[int, Field(ge=1, lt=2**32)]
    text_bytes: Annotated[int, Field(ge=0)]
    sample: str
    filters: tuple[str, ...] = ()

    def bound_to(self, model: str, terms: str) -> str:
        """End of the collection's name for a version with these hashes."""
        return binding(model, terms, self.sample, self.rows)


class StoredHeader(StrictModel):
    """`store/store.json`: components whose rows are in collections.

    Attributes:
        format: format version.
        address: of the server, without credentials.
        collections: one for each unit of rows.
    """

    format: Literal[1] = 1
    address: str
    collections: tuple[StoredRows, ...]


class StoreHeader(StrictModel):
    """`vectors.json`.

    Attributes:
        format: format version.
        address: of the server, without credentials.
        collection: its name; its end, a hash of model, term statistics and vectors, ties it to a version.
        index: kind of dense index.
        vectors, dimensions: size of the collection.
        sample: SHA-256 of the vectors of `sampled_rows`.
        fields: names of the columns that it can filter, in the order of its fields `f0`, `f1`, …
    """

    format: Literal[1] = 1
    address: str
    collection: CollectionName
    index: IndexKind
    vectors: Annotated[int, Field(ge=1, lt=2**32)]
    dimensions: Annotated[int, Field(ge=1, le=32_768)]
    sample: str
    fields: tuple[str, ...] = ()

    def bound_to(self, model: str, terms: str) -> str:
        """End of a collection's name for a version with these hashes. Lite stores no description, but every server a name."""
        return binding(model, terms, self.sample, self.vectors)


def binding(model: str, terms: str, sample: str, rows: int) -> str:
    """End of a collection's name, from the hashes of a version and of its rows."""
    return hashlib.sha256(f"{model} {terms} {sample} {rows}".encode()).hexdigest()[:24]


def read_stored_header(folder: Path) -> StoredHeader:
    """Reads `store.json` from its directory.

    Raises:
        FormatError: if it is missing, damaged or of another format.
    """
    return read_header(folder / STORED_HEADER, StoredHeader)


def read_store_header(folder: Path) -> StoreHeader:
    """Reads it from a version's directory.

    Raises:
        FormatError: if it is missing, damaged or of another format.
    """
    return read_header(folder / STORE_FILE, StoreHeader)


def sampled_rows(vectors: int) -> NDArray[np.int64]:
    """The rows to compare bit for bit when a collection is opened, int64, ascending."""
    return np.unique(np.linspace(0, vectors - 1, min(SAMPLED, vectors)).astype(np.int64))


def sample_hash(vectors: NDArray[np.float32]) -> str:
    """SHA-256 of sampled vectors, float32 [m, D]."""
    return hashlib.sha256(np.ascontiguousarray(vectors, "<f4").tobytes()).hexdigest()


def collections_of(folder: Path) -> dict[str, str]:
    """The collections of a version: name -> address; empty if all its rows are in files.

    Raises:
        FormatError: if a header is damaged.
    """
    found: dict[str, str] = {}
    if (folder / STORE_FILE).is_file():
        vectors = read_store_header(folder)
        found[vectors.collection] = vectors.address
    if (folder / STORED_FOLDER / STORED_HEADER).is_file():
        stored = read_stored_header(folder / STORED_FOLDER)
        found |= {each.collection: stored.address for each in stored.collections}
    return found
