"""Vectors in Milvus: a collection is the immutable dense part of one version, made by the builder and searched by the service."""

from glow.index.milvus.connection import StoreAccess, connect, require_pymilvus
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import STORE_FILE, STORE_INDEXES, StoreHeader, read_store_header, sampled_rows
from glow.index.milvus.vectors import MilvusVectors
from glow.index.milvus.write import (
    IMPORT_ROWS,
    CollectionWriter,
    Insert,
    drop_collection,
    insert_rows,
    release_collection,
)

__all__ = [
    "IMPORT_ROWS",
    "STORE_FILE",
    "STORE_INDEXES",
    "CollectionWriter",
    "FilterFields",
    "Insert",
    "MilvusVectors",
    "StoreAccess",
    "StoreHeader",
    "connect",
    "drop_collection",
    "insert_rows",
    "read_store_header",
    "release_collection",
    "require_pymilvus",
    "sampled_rows",
]
