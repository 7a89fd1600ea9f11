"""Index parts and their file formats: dense vectors, document store, and a version as a whole."""

from glow.search.dense import KINDS, DenseIndex, IndexKind, SearchParams, build_dense, choose_kind
from glow.search.documents import DocumentStore, DocumentWriter
from glow.search.index import Index

__all__ = [
    "KINDS",
    "DenseIndex",
    "DocumentStore",
    "DocumentWriter",
    "Index",
    "IndexKind",
    "SearchParams",
    "build_dense",
    "choose_kind",
]
