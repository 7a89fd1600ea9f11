"""Rows of an index in Milvus: collections are an immutable part of one version; the builder writes them, the service searches them."""

from glow.index.milvus.connection import StoreAccess, connect, require_version
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import STORE_FILE, STORED_FOLDER, StoreHeader, collections_of, read_store_header
from glow.index.milvus.import_range import ImportRange, documents_of
from glow.index.milvus.stored import open_stored, store_segment, stored_header
from glow.index.milvus.vectors import MilvusVectors
from glow.index.milvus.write import (
    CollectionWriter,
    collection_prefix,
    drop_collection,
    release_collection,
)

__all__ = [
    "STORED_FOLDER",
    "STORE_FILE",
    "CollectionWriter",
    "FilterFields",
    "ImportRange",
    "MilvusVectors",
    "StoreAccess",
    "StoreHeader",
    "collection_prefix",
    "collections_of",
    "connect",
    "documents_of",
    "drop_collection",
    "open_stored",
    "read_store_header",
    "release_collection",
    "require_version",
    "store_segment",
    "stored_header",
]  # fmt: skip
