"""The vectors of a version, wherever they lie: a FAISS file in its folder, or a collection of a Milvus server that a file names."""

from pathlib import Path

from glow.index.columns import Columns
from glow.index.milvus import STORE_FILE, MilvusVectors, connect, read_store_header
from glow.index.vectors import DenseIndex
from glow.runtime import Device

__all__ = ["DENSE_FILE", "StoredVectors", "is_elsewhere", "open_dense"]

DENSE_FILE = "vectors.faiss"
StoredVectors = DenseIndex | MilvusVectors


def is_elsewhere(vectors: StoredVectors) -> bool:
    """Whether a server has them."""
    return isinstance(vectors, MilvusVectors)


def open_dense(folder: Path, columns: Columns | None = None, device: Device = "cpu") -> StoredVectors:
    """Opens the vectors of a version's folder.

    Args:
        folder: holds `vectors.faiss` or `vectors.json`.
        columns: by which filters are said to a server; None: by rows.
        device: where FAISS has them.

    Raises:
        FormatError: if the file is missing or damaged.
        StoreError, ConfigError, DependencyError: if the server cannot be asked.
    """
    if not (folder / STORE_FILE).is_file():
        return DenseIndex.load(folder / DENSE_FILE, device)
    header = read_store_header(folder)
    return MilvusVectors(connect(header.address), header, columns)
