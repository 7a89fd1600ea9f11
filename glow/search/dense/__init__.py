"""Vectors: the kinds of dense index, how each is built, searched and filtered."""

from glow.search.dense.build import VectorRows, build_dense
from glow.search.dense.cosines import products
from glow.search.dense.index import (
    DEFAULT_NPROBE,
    GPU_MAX_HITS,
    HNSW_EF_SEARCH,
    DenseIndex,
    SearchParams,
    VectorReader,
    require_device,
    set_threads,
)
from glow.search.dense.kinds import KINDS, IndexKind, choose_kind, index_bytes, list_count, require_buildable

__all__ = [
    "DEFAULT_NPROBE", "GPU_MAX_HITS", "HNSW_EF_SEARCH", "KINDS", "DenseIndex", "IndexKind", "SearchParams", "VectorReader", "VectorRows",
    "build_dense", "choose_kind", "index_bytes", "list_count", "products", "require_buildable", "require_device", "set_threads",
]  # fmt: skip
