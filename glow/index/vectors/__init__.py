"""Dense indexes: building, searching and filtering each kind."""

from glow.index.encoding import VectorRows
from glow.index.vector_search import (
    DEFAULT_NPROBE,
    HNSW_EF_SEARCH,
    KINDS,
    IndexKind,
    SearchParams,
    list_count,
)
from glow.index.vectors.build import build_dense
from glow.index.vectors.component import VECTORS
from glow.index.vectors.filter import should_scan
from glow.index.vectors.index import GPU_MAX_HITS, DenseIndex, require_device, set_threads
from glow.index.vectors.kept_rows import KeptVectors
from glow.index.vectors.kinds import (
    FLAT_MAX_VECTORS,
    choose_kind,
    code_count,
    index_bytes,
)
from glow.index.vectors.rules import VectorOptions, VectorRules
from glow.index.vectors.view import DenseView

__all__ = [
    "DEFAULT_NPROBE",
    "FLAT_MAX_VECTORS",
    "GPU_MAX_HITS",
    "HNSW_EF_SEARCH",
    "KINDS",
    "VECTORS",
    "DenseIndex",
    "DenseView",
    "IndexKind",
    "KeptVectors",
    "SearchParams",
    "VectorOptions",
    "VectorRows",
    "VectorRules",
    "build_dense",
    "choose_kind",
    "code_count",
    "index_bytes",
    "list_count",
    "require_device",
    "set_threads",
    "should_scan",
]
