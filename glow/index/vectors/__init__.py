"""Dense indexes: building, searching and filtering each kind."""

from glow.index.component import VectorRows
from glow.index.ranking import KINDS, IndexKind, SearchParams, list_count
from glow.index.vectors.build import (
    FLAT_MAX_VECTORS,
    KeptVectors,
    VectorOptions,
    VectorRules,
    build_dense,
    choose_kind,
    code_count,
    index_bytes,
)
from glow.index.vectors.component import VECTORS, DenseView
from glow.index.vectors.index import GPU_MAX_HITS, DenseIndex, require_device, set_threads

__all__ = [
    "FLAT_MAX_VECTORS", "GPU_MAX_HITS", "KINDS", "VECTORS", "DenseIndex", "DenseView", "IndexKind", "KeptVectors",
    "SearchParams", "VectorOptions", "VectorRows", "VectorRules", "build_dense", "choose_kind", "code_count", "index_bytes",
    "list_count", "require_device", "set_threads",
]  # fmt: skip
