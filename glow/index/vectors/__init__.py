"""Vectors: the kinds of dense index, how each is built, searched and filtered."""

from glow.index.vectors.build import VectorRows, build_dense
from glow.index.vectors.cosines import products
from glow.index.vectors.filter import should_scan
from glow.index.vectors.index import (
    DEFAULT_NPROBE,
    GPU_MAX_HITS,
    HNSW_EF_SEARCH,
    DenseIndex,
    SearchParams,
    VectorReader,
    require_device,
    set_threads,
)
from glow.index.vectors.kinds import (
    FLAT_MAX_VECTORS,
    KINDS,
    IndexKind,
    choose_kind,
    code_count,
    index_bytes,
    list_count,
    require_buildable,
)

__all__ = [
    "DEFAULT_NPROBE",
    "FLAT_MAX_VECTORS",
    "GPU_MAX_HITS",
    "HNSW_EF_SEARCH",
    "KINDS",
    "DenseIndex",
    "IndexKind",
    "SearchParams",
    "VectorReader",
    "VectorRows",
    "build_dense",
    "choose_kind",
    "code_count",
    "index_bytes",
    "list_count",
    "products",
    "require_buildable",
    "require_device",
    "set_threads",
    "should_scan",
]
