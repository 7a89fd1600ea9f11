"""The vectors of one segment: a FAISS file in its directory, or a collection of a Milvus server that a file names."""

from pathlib import Path

from glow.index.columns import Columns
from glow.index.milvus import STORE_FILE, MilvusVectors, connect, read_store_header
from glow.index.vectors.index import DenseIndex
from glow.runtime import Device

__all__ = ["DENSE_FILE", "StoredVectors", "open_dense"]

DENSE_FILE = "vectors.faiss"
StoredVectors = DenseIndex | MilvusVectors


def open_dense(path: Path, columns: Columns | None, device: Device) -> StoredVectors:
    """Opens the vectors of a segment; `MilvusVectors.check` checks a collection later.

    Args:
        path: of `vectors.faiss` or `vectors.json`.
        columns: to translate filters for a server; None: filters are sent as rows.
        device: of FAISS.

    Raises:
        FormatError: if the file is damaged.
        DeviceError: if the device is missing, or the kind cannot run on it.
        StoreError, ConfigError, DependencyError: if the server cannot be used.
    """
    if path.name != STORE_FILE:
        return DenseIndex.load(path, device)
    header = read_store_header(path.parent)
    return MilvusVectors(connect(header.address), header, columns)
