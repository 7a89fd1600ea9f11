"""Vectors in Milvus: a collection is the immutable dense part of one version, made by the builder and searched by the service."""

from glow.search.milvus.connection import StoreAccess, connect, require_pymilvus
from glow.search.milvus.expressions import FilterFields
from glow.search.milvus.format import STORE_FILE, STORE_INDEXES, StoreHeader, read_store_header, sampled_rows
from glow.search.milvus.vectors import MilvusVectors
from glow.search.milvus.write import CollectionWriter, drop_collection

__all__ = [
    "STORE_FILE", "STORE_INDEXES", "CollectionWriter", "FilterFields", "MilvusVectors", "StoreAccess", "StoreHeader",
    "connect", "drop_collection", "read_store_header", "require_pymilvus", "sampled_rows",
]  # fmt: skip
