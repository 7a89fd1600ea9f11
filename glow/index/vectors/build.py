"""Builds a dense index from vectors."""

from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from glow.index.encoding import VectorRows
from glow.index.vector_search import TRAIN_VECTORS_PER_LIST, IndexKind, list_count
from glow.index.vectors.index import DenseIndex
from glow.index.vectors.kinds import (
    HNSW_LINKS,
    PQ_BITS,
    PQ_BLOCK_VECTORS,
    code_count,
    require_buildable,
)

__all__ = ["VectorRows", "build_dense"]

faiss: Any = _faiss  # its type stubs are incomplete

HNSW_EF_CONSTRUCTION = 200
MAX_TRAIN_VECTORS = 262_144
BLOCK_VECTORS = 4_096
"""Number of vectors in memory besides the index: 6 MB at 384 dimensions."""


def build_dense(vectors: VectorRows, kind: IndexKind, like: DenseIndex | None = None) -> DenseIndex:
    """Builds an index over vectors; row i is vector i.

    Args:
        vectors: float32 [count, D], L2-normalized; read in blocks, so they need not fit into memory twice.
        kind: one of `KINDS`.
        like: an index that the vectors were read from. Of `ivf-pq` it gives the ranges of the 8 bits, so that the same codes are
            stored again.

    Raises:
        ConfigError: if the kind is unknown, or there are too few vectors to train it.
    """
    count, dimensions = vectors.shape
    require_buildable(kind, count)
    index = _empty(kind, count, dimensions)
    if not index.is_trained:
        _train(index, _sample(vectors, count), like)
    _reserve(index, kind, count)
    for start in range(0, count, BLOCK_VECTORS):  # a memory-mapped array is read in blocks
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK_VECTORS], np.float32))
    return DenseIndex(index, kind)


def _empty(kind: IndexKind, count: int, dimensions: int) -> Any:
    metric = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dimensions)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, HNSW_LINKS, metric)
        index.hnsw.efConstruction = HNSW_EF_CONSTRUCTION
        return index
    lists = list_count(count)
    quantizer = faiss.IndexFlatIP(dimensions)
    index = faiss.IndexIVFPQFastScan(
        quantizer, dimensions, lists, code_count(dimensions), PQ_BITS, metric, PQ_BLOCK_VECTORS
    )
    index.pq.cp.min_points_per_centroid = 1  # small corpora are fine, a warning on stderr is not
    index.cp.min_points_per_centroid = 1
    index.own_fields = True
    quantizer.this.disown()
    # Python keeps the parts alive with the object that refers to them.
    return faiss.IndexRefine(
        index, faiss.IndexScalarQuantizer(dimensions, faiss.ScalarQuantizer.QT_8bit, metric)
    )


def _train(index: Any, sample: NDArray[np.float32], like: DenseIndex | None) -> None:
    """Trains lists and codes; the ranges of the 8 bits are those of `like`, or cover the sample."""
    base, stored = faiss.downcast_index(index.base_index), faiss.downcast_index(index.refine_index)
    base.train(sample)
    ranges = None if like is None else like.ranges
    if ranges is None:
        stored.train(sample)
    else:
        faiss.copy_array_to_vector(ranges, stored.sq.trained)
        stored.is_trained = True
    index.is_trained = True


def _reserve(index: Any, kind: IndexKind, count: int) -> None:
    """Allocates the memory of all vectors once: a growing array holds the old and the new one at the same time."""
    storage = {"hnsw": "storage", "ivf-pq": "refine_index"}
    part = faiss.downcast_index(getattr(index, storage[kind])) if kind in storage else index
    part.codes.resize(count * int(part.code_size))
    part.codes.resize(0)
    if kind == "hnsw":
        index.hnsw.neighbors.resize(int(count * (2 * HNSW_LINKS + 4)))  # with a few links of higher levels
        index.hnsw.neighbors.resize(0)


def _sample(vectors: VectorRows, count: int) -> NDArray[np.float32]:
    """The training vectors of lists and codes: a seeded sample, in order."""
    wanted = min(count, MAX_TRAIN_VECTORS, max(list_count(count) * TRAIN_VECTORS_PER_LIST, 1 << 14))
    rows = np.sort(np.random.default_rng(0).choice(count, wanted, replace=False))
    return np.ascontiguousarray(vectors[rows], np.float32)
