"""The vectors of one segment, wherever they lie: a FAISS file in its folder, or a collection of a Milvus server that a file names."""

from pathlib import Path

from glow.index.columns import Columns
from glow.index.milvus import STORE_FILE, MilvusVectors, connect, read_store_header
from glow.index.vectors.index import DenseIndex
from glow.runtime import Device

__all__ = ["DENSE_FILE", "StoredVectors", "open_dense"]

DENSE_FILE = "vectors.faiss"
StoredVectors = DenseIndex | MilvusVectors


def open_dense(path: Path, columns: Columns | None, device: Device) -> StoredVectors:
    """Opens the vectors of a segment; a collection is not looked at yet (`MilvusVectors.check`).

    Args:
        path: of `vectors.faiss` or `vectors.json`.
        columns: by which filters are said to a server; None: by rows.
        device: where FAISS has them.

    Raises:
        FormatError: if the file is damaged.
        DeviceError: if the device is not there, or the kind cannot be on it.
        StoreError, ConfigError, DependencyError: if the server cannot be asked.
    """
    if path.name != STORE_FILE:
        return DenseIndex.load(path, device)
    header = read_store_header(path.parent)
    return MilvusVectors(connect(header.address), header, columns)
