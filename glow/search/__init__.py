"""Index parts and their file formats: dense vectors, document store, and a version as a whole."""

from glow.search.columns import Columns
from glow.search.columns_build import build_columns
from glow.search.columns_format import Header as ColumnsHeader
from glow.search.dense import DenseIndex, SearchParams, require_device, set_threads
from glow.search.dense_build import build_dense
from glow.search.documents import DocumentStore, DocumentWriter
from glow.search.index import Index
from glow.search.kinds import KINDS, IndexKind, choose_kind, index_bytes, require_buildable

__all__ = [
    "KINDS",
    "Columns",
    "ColumnsHeader",
    "DenseIndex",
    "DocumentStore",
    "DocumentWriter",
    "Index",
    "IndexKind",
    "SearchParams",
    "build_columns",
    "build_dense",
    "choose_kind",
    "index_bytes",
    "require_buildable",
    "require_device",
    "set_threads",
]
