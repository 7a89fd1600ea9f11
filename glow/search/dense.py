"""The dense index: FAISS over L2-normalised vectors, inner product = cosine.

    n   queries     k   hits a query    D   dimensions

Kinds: `flat` compares with every vector, exactly; `hnsw` walks a graph; `ivf-flat` and `ivf-pq` look into the nearest
of many lists, the latter over compressed vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError, DeviceError, FormatError, QueryError

__all__ = ["KINDS", "DenseIndex", "IndexKind", "SearchParams", "build_dense", "choose_kind"]

IndexKind = Literal["flat", "hnsw", "ivf-flat", "ivf-pq"]
KINDS: tuple[IndexKind, ...] = ("flat", "hnsw", "ivf-flat", "ivf-pq")

# docs/results/dense-index.md has the measurements behind these figures.
FLAT_MAX_VECTORS = 10_000
DEFAULT_MEMORY_BYTES = 4 << 30
HNSW_LINKS = 32
HNSW_EF_CONSTRUCTION = 200
HNSW_EF_SEARCH = 96
DEFAULT_NPROBE = 32
PQ_BITS = 8
PQ_DIMENSIONS_PER_CODE = 4
TRAIN_VECTORS_PER_LIST = 64
MAX_TRAIN_VECTORS = 262_144
MIN_READ_LIMIT_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class SearchParams:
    """How thoroughly to search; None takes the index's default.

    Attributes:
        ef_search: candidates that `hnsw` keeps, 1 to 10,000.
        nprobe: lists that `ivf-*` looks into, 1 to 65,536.
        exact: compare with every vector, whatever the kind; not offered by `ivf-pq`.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    exact: bool = False


class DenseIndex:
    """A FAISS index of one kind on one device.

    Args:
        index: the FAISS index.
        kind: which of `KINDS` it is.
        device: `cpu` or `cuda`.
    """

    def __init__(self, index: Any, kind: IndexKind, device: str = "cpu") -> None:
        self._index = index
        self.kind = kind
        self.device = device
        self.dimensions = int(index.d)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(
        self, vectors: NDArray[np.float32], k: int, params: SearchParams | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Finds the k nearest vectors of each query.

        Args:
            vectors: float32 [n, D], L2-normalised.
            k: hits a query, >= 1; fewer come where the index holds fewer.
            params: how thoroughly.

        Returns:
            scores float32 [n, k'] descending, in [-1, 1], and rows int64 [n, k'], k' = min(k, vectors); ties
            go to the smaller row. Where an approximate search found fewer, row -1 and score -inf fill up.

        Raises:
            QueryError: `exact` was asked of an index that has no exact vectors.
        """
        k = min(k, len(self))
        if k == 0:
            return np.empty((len(vectors), 0), np.float32), np.empty((len(vectors), 0), np.int64)
        params = params or SearchParams()
        index, options = self._plan(params)
        scores, rows = index.search(vectors, k, params=options) if options else index.search(vectors, k)
        scores = np.where(rows < 0, np.float32(-np.inf), scores)
        order = np.lexsort((rows, -scores), axis=-1)
        return np.take_along_axis(scores, order, -1), np.take_along_axis(rows, order, -1)

    def _plan(self, params: SearchParams) -> tuple[Any, Any]:
        """Which FAISS object to search, with which FAISS parameters."""
        if self.kind == "flat":
            return self._index, None
        if self.kind == "hnsw":
            if params.exact:
                return self._index.storage, None
            return self._index, faiss.SearchParametersHNSW(efSearch=params.ef_search or HNSW_EF_SEARCH)
        if params.exact and self.kind == "ivf-pq":
            raise QueryError("this index holds compressed vectors (ivf-pq) and cannot search exactly")
        if self.device == "cuda":
            self._index.nprobe = self._probes(params)
            return self._index, None
        return self._index, faiss.SearchParametersIVF(nprobe=self._probes(params))

    def _probes(self, params: SearchParams) -> int:
        lists = int(self._index.nlist)
        return lists if params.exact else min(params.nprobe or DEFAULT_NPROBE, lists)

    def save(self, path: Path) -> None:
        """Writes the index in CPU form, whatever device it is on."""
        index = faiss.index_gpu_to_cpu(self._index) if self.device == "cuda" else self._index
        faiss.write_index(index, str(path))

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> "DenseIndex":
        """Opens an index file whose checksum was verified before; on the CPU its vectors are memory-mapped.

        Raises:
            FormatError: FAISS cannot read it, or it is of no kind that we write.
            DeviceError: no GPU, or a kind that cannot run on one.
        """
        # A damaged size field must not allocate without bound; ivf-pq allocates a table of its own beside the file.
        faiss.set_deserialization_vector_byte_limit(max(path.stat().st_size, MIN_READ_LIMIT_BYTES))
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise FormatError(f"FAISS cannot read {path.name}: {error}") from error
        kind = _kind_of(index)
        if device == "cuda":
            return cls(_to_gpu(index, kind), kind, "cuda")
        return cls(index, kind)


def choose_kind(count: int, dimensions: int, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> IndexKind:
    """The kind that suits a size: exact while that is fast, a graph while it fits, compressed beyond.

    Args:
        count: vectors.
        dimensions: D.
        memory_bytes: what the index may take in memory.
    """
    if count <= FLAT_MAX_VECTORS:
        return "flat"
    graph_bytes = count * (4 * dimensions + 8 * HNSW_LINKS)
    return "hnsw" if graph_bytes <= memory_bytes else "ivf-pq"


def build_dense(vectors: NDArray[np.float32], kind: IndexKind, device: str = "cpu") -> DenseIndex:
    """Builds an index over vectors; row i is vector i.

    Args:
        vectors: float32 [count, D], L2-normalised; may be memory-mapped.
        kind: one of `KINDS`.
        device: `cpu`, or `cuda` to build on the GPU (`save` writes the CPU form).

    Raises:
        ConfigError: unknown kind, or too few vectors for a kind that must be trained.
        DeviceError: no GPU, or `hnsw` on one.
    """
    count, dimensions = vectors.shape
    index = _empty(kind, count, dimensions)
    if device == "cuda":
        index = _to_gpu(index, kind)
    if not index.is_trained:
        index.train(_sample(vectors, kind, count))
    for start in range(0, count, 65_536):  # a memory-mapped array is read block by block
        index.add(np.ascontiguousarray(vectors[start : start + 65_536], np.float32))
    return DenseIndex(index, kind, device)


def list_count(count: int) -> int:
    """Lists of an IVF index: 4·sqrt(count), bounded by what its training set can fill."""
    return int(min(max(4 * count**0.5, 1), max(count // TRAIN_VECTORS_PER_LIST, 1)))


def _empty(kind: IndexKind, count: int, dimensions: int) -> Any:
    metric = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dimensions)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, HNSW_LINKS, metric)
        index.hnsw.efConstruction = HNSW_EF_CONSTRUCTION
        return index
    if kind not in KINDS:
        raise ConfigError(f"unknown index kind {kind!r}; known: auto, {', '.join(KINDS)}")
    lists = list_count(count)
    quantizer = faiss.IndexFlatIP(dimensions)
    if kind == "ivf-flat":
        index = faiss.IndexIVFFlat(quantizer, dimensions, lists, metric)
    else:
        if count < 1 << PQ_BITS:
            raise ConfigError(f"ivf-pq needs at least {1 << PQ_BITS} vectors to train, found {count}")
        codes = max(dimensions // PQ_DIMENSIONS_PER_CODE, 1)
        index = faiss.IndexIVFPQ(quantizer, dimensions, lists, codes, PQ_BITS, metric)
    index.own_fields = True
    quantizer.this.disown()
    return index


def _sample(vectors: NDArray[np.float32], kind: IndexKind, count: int) -> NDArray[np.float32]:
    wanted = min(count, MAX_TRAIN_VECTORS, max(list_count(count) * TRAIN_VECTORS_PER_LIST, 1 << 14))
    rows = np.sort(np.random.default_rng(0).choice(count, wanted, replace=False))
    return np.ascontiguousarray(vectors[rows], np.float32)


def _to_gpu(index: Any, kind: IndexKind) -> Any:
    devices = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    if devices < 1:
        raise DeviceError(
            "device 'cuda' was asked for, and this faiss sees no GPU; install the `gpu` extra or use --device cpu"
        )
    if kind == "hnsw":
        raise DeviceError("an hnsw index cannot run on a GPU; choose flat, ivf-flat or ivf-pq")
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


def _kind_of(index: Any) -> IndexKind:
    kinds: Sequence[tuple[str, IndexKind]] = (
        ("IndexHNSWFlat", "hnsw"),
        ("IndexIVFFlat", "ivf-flat"),
        ("IndexIVFPQ", "ivf-pq"),
        ("IndexFlat", "flat"),
    )
    for name, kind in kinds:
        if isinstance(index, getattr(faiss, name)):
            return kind
    raise FormatError(f"the index file holds a {type(index).__name__}, which GLOW does not write")
