"""Building a dense index from vectors."""

from typing import Any, Protocol

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from glow.search.dense.index import DenseIndex, to_gpu
from glow.search.dense.kinds import (
    HNSW_LINKS,
    PQ_BITS,
    TRAIN_VECTORS_PER_LIST,
    IndexKind,
    code_count,
    list_count,
    require_buildable,
)

__all__ = ["VectorRows", "build_dense"]

faiss: Any = _faiss  # its type stubs lack much of what it has

HNSW_EF_CONSTRUCTION = 200
MAX_TRAIN_VECTORS = 262_144
# FAISS's 256 and 25 take seven times as long and find hardly more.
PQ_TRAIN_VECTORS_PER_CODE = 64
PQ_TRAIN_ROUNDS = 15
BLOCK_VECTORS = 4_096
"""Vectors that are held beside the index in the making: 6 MB of 384 dimensions."""


class VectorRows(Protocol):
    """Vectors that are read block by block: an array, or what reads them from files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(count, D)."""
        ...

    def __getitem__(self, wanted: Any, /) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        ...


def build_dense(vectors: VectorRows, kind: IndexKind, device: str = "cpu") -> DenseIndex:
    """Builds an index over vectors; row i is vector i.

    Args:
        vectors: float32 [count, D], L2-normalised; read in blocks, so they need not fit into memory twice.
        kind: one of `KINDS`.
        device: `cpu`, or `cuda` to build on the GPU (`save` writes the CPU form).

    Raises:
        ConfigError: if unknown kind, or too few vectors for a kind that must be trained.
        DeviceError: if there is no GPU, or `hnsw` is asked for on one.
    """
    count, dimensions = vectors.shape
    require_buildable(kind, count)
    index = _empty(kind, count, dimensions)
    if device == "cuda":
        index = to_gpu(index, kind)
    if not index.is_trained:
        index.train(_sample(vectors, count))
    if device == "cpu":
        _reserve(index, kind, count)
    for start in range(0, count, BLOCK_VECTORS):  # a memory-mapped array is read block by block
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK_VECTORS], np.float32))
    return DenseIndex(index, kind, device)


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
    if kind == "ivf-flat":
        index = faiss.IndexIVFFlat(quantizer, dimensions, lists, metric)
    else:
        index = faiss.IndexIVFPQ(quantizer, dimensions, lists, code_count(dimensions), PQ_BITS, metric)
        index.pq.cp.min_points_per_centroid = 1  # small corpora are fine, a warning on stderr is not
        index.pq.cp.max_points_per_centroid = PQ_TRAIN_VECTORS_PER_CODE
        index.pq.cp.niter = PQ_TRAIN_ROUNDS
    index.cp.min_points_per_centroid = 1
    index.own_fields = True
    quantizer.this.disown()
    return index


def _reserve(index: Any, kind: IndexKind, count: int) -> None:
    """Takes the memory of all vectors once: an array that grows holds the old one and the new at the same time."""
    if kind in ("flat", "hnsw"):
        codes = (index if kind == "flat" else faiss.downcast_index(index.storage)).codes
        codes.resize(count * 4 * index.d)
        codes.resize(0)
    if kind == "hnsw":
        index.hnsw.neighbors.resize(int(count * (2 * HNSW_LINKS + 4)))  # with a few links of higher levels
        index.hnsw.neighbors.resize(0)


def _sample(vectors: VectorRows, count: int) -> NDArray[np.float32]:
    """The vectors that train lists and codes: a seeded sample, in order."""
    wanted = min(count, MAX_TRAIN_VECTORS, max(list_count(count) * TRAIN_VECTORS_PER_LIST, 1 << 14))
    rows = np.sort(np.random.default_rng(0).choice(count, wanted, replace=False))
    return np.ascontiguousarray(vectors[rows], np.float32)
