"""`vectors.json` of a version with vectors in Milvus: the collection, and how to verify it."""

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
    "ROW_FIELD", "STORE_FILE", "STORE_INDEXES", "VECTOR_FIELD", "StoreHeader", "read_store_header", "sample_hash", "sampled_rows",
]  # fmt: skip

STORE_FILE = "vectors.json"
ROW_FIELD, VECTOR_FIELD = "row", "vector"
STORE_INDEXES: dict[IndexKind, tuple[str, dict[str, int]]] = {
    "flat": ("FLAT", {}),
    "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}),
    "ivf-flat": ("IVF_FLAT", {}),
    "ivf-pq": ("IVF_SQ8", {}),
}
"""Milvus' index for each kind; `IVF` gets as many inverted lists as in GLOW."""
SAMPLED = 100


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
    collection: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,254}$")]
    index: IndexKind
    vectors: Annotated[int, Field(ge=1, lt=2**32)]
    dimensions: Annotated[int, Field(ge=1, le=32_768)]
    sample: str
    fields: tuple[str, ...] = ()

    def bound_to(self, model: str, terms: str) -> str:
        """End of a collection's name for a version with these hashes. Lite stores no description, but every server a name."""
        return hashlib.sha256(f"{model} {terms} {self.sample} {self.vectors}".encode()).hexdigest()[:24]


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
