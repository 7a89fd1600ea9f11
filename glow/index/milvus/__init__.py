"""Rows of an index in Milvus: collections are an immutable part of one version; the builder writes them, the service searches them."""

from glow.index.milvus.collection import SCORE_TOLERANCE, FilterFields, MilvusVectors
from glow.index.milvus.components import open_stored, store_segment, stored_header
from glow.index.milvus.connection import (
    STORE_FILE,
    STORED_FOLDER,
    StoreAccess,
    StoreHeader,
    collections_of,
    connect,
    read_store_header,
    require_version,
)
from glow.index.milvus.write import (
    ImportRange,
    collection_prefix,
    drop_collection,
    release_collection,
    write_vectors,
)

__all__ = [
    "SCORE_TOLERANCE", "STORED_FOLDER", "STORE_FILE", "FilterFields", "ImportRange", "MilvusVectors", "StoreAccess",
    "StoreHeader", "collection_prefix", "collections_of", "connect", "drop_collection", "open_stored",
    "read_store_header", "release_collection", "require_version", "store_segment", "stored_header", "write_vectors",
]  # fmt: skip
