"""Vectors in Milvus: a collection is the immutable dense part of one version; the builder writes it, the service searches it."""

from glow.index.milvus.connection import StoreAccess, connect
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import STORE_FILE, StoreHeader, read_store_header
from glow.index.milvus.import_range import ImportRange
from glow.index.milvus.store import VectorStore
from glow.index.milvus.vectors import MilvusVectors
from glow.index.milvus.write import (
    CollectionWriter,
    drop_collection,
    release_collection,
)

__all__ = [
    "STORE_FILE", "CollectionWriter", "FilterFields", "ImportRange", "MilvusVectors", "StoreAccess", "StoreHeader",
    "VectorStore", "connect", "drop_collection", "read_store_header", "release_collection",
]  # fmt: skip
