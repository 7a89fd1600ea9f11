"""Builds a dense index: kinds, the choice of one, and what is indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError
from glow.index.component import ComponentOptions, Rules, VectorRows
from glow.index.ranking import KINDS, TRAIN_VECTORS_PER_LIST, IndexKind, VectorReader, list_count
from glow.index.vectors.index import DenseIndex
from glow.options import option

# docs/results/serving.md has the measurements behind these figures.
FLAT_MAX_VECTORS = 4_000
DEFAULT_MEMORY_MB = 4096
HNSW_LINKS = 32
PQ_BITS = 4
PQ_DIMENSIONS_PER_CODE = 2
PQ_BLOCK_VECTORS = 32  # codes of a block; FAISS fills up the last block of each list


def choose_kind(
    count: int, dimensions: int, memory_bytes: int = DEFAULT_MEMORY_MB << 20, device: str = "cpu"
) -> IndexKind:
    """The kind for a size: exact while that is fast and on a GPU, approximate while it fits into memory, compressed beyond."""
    if count <= FLAT_MAX_VECTORS or device != "cpu":
        return "flat"
    return "ivf-pq" if index_bytes("hnsw", count, dimensions) > memory_bytes else "hnsw"


def index_bytes(kind: IndexKind, count: int, dimensions: int) -> int:
    """Approximate size of an index on disk, and in memory while searched; for `ivf-pq`, D bytes per vector are rarely read."""
    whole = 4 * dimensions
    if kind == "flat":
        return count * whole
    if kind == "hnsw":
        return count * (whole // 2 + 8 * HNSW_LINKS + 20)  # 2M links of 4 bytes, upper levels and offsets
    codes = -(-code_count(dimensions) // 2)
    return list_count(count) * (whole + codes * PQ_BLOCK_VECTORS // 2) + count * (8 + codes + dimensions)


def require_buildable(kind: IndexKind, count: int) -> None:
    """Refuses a kind if there are too few vectors to train it."""
    if kind not in KINDS:
        raise ConfigError(f"unknown index kind {kind!r}; known: auto, {', '.join(KINDS)}")
    if kind == "ivf-pq" and count < 1 << PQ_BITS:
        raise ConfigError(
            f"an {kind} index needs at least {1 << PQ_BITS} vectors to train, found {count}; choose flat"
        )


def code_count(dimensions: int) -> int:
    """Number of 4-bit codes of a compressed vector: the most that divide D into parts of at least 2 dimensions."""
    most = max(dimensions // PQ_DIMENSIONS_PER_CODE, 1)
    return next(codes for codes in range(most, 0, -1) if dimensions % codes == 0)


class VectorOptions(ComponentOptions):
    """The kind of dense index, and its place."""

    index: IndexKind | Literal["auto"] = option(
        "auto", "Kind of dense index; auto chooses by number of vectors and --memory-mb."
    )
    memory_mb: int = option(
        DEFAULT_MEMORY_MB, "Memory limit of the served dense index in MiB, for auto.", ge=1
    )
    store: str | None = option(
        None,
        "Store documents, postings, vectors and token embeddings in Milvus: milvus://HOST:PORT[/DATABASE], or milvus:///PATH.db "
        "without a server.",
        metavar="ADDRESS",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRules(Rules):
    """How vectors are indexed."""

    index: IndexKind | Literal["auto"]  # the kind; `auto` chooses by number of vectors
    dimensions: int  # D
    device: str = (
        "cpu"  # of encoding and of the served index; for `auto`, because a GPU searches `flat` alone
    )
    memory_mb: int = DEFAULT_MEMORY_MB  # memory limit of the served index in MiB, for `auto`
    store: str | None = None  # address of the Milvus that holds what grows with documents; None: files
    halves: bool = False  # of the delta of an `hnsw` base: a document has one score in both
    falls_back: bool = False  # whether the kind is `flat` if there are too few vectors, instead of an error

    def kind(self, count: int) -> IndexKind:
        """The kind for a number of vectors."""
        if self.index == "auto":
            return choose_kind(count, self.dimensions, self.memory_mb << 20, self.device)
        try:
            require_buildable(self.index, count)
        except ConfigError:
            if not self.falls_back:
                raise
            return "flat"
        return self.index

    def describe(self, kind: IndexKind, count: int, unit: str, size_bytes: int) -> dict[str, Any]:
        """A report's description of the index: kind, reason and size, JSON values."""
        return {
            "kind": kind,
            "why": self._why(kind, count, unit),
            "dimensions": self.dimensions,
            "size_bytes": size_bytes,
            **({"store": self.store} if self.store else {}),
        }

    def _why(self, kind: IndexKind, count: int, unit: str) -> str:
        if self.index == kind:
            return "asked for by --index"
        if self.index != "auto":
            return f"{count} {unit} are too few for {self.index}, which was asked for by --index"
        if kind == "flat":
            few = "few enough to compare with every one"
            why = few if count <= FLAT_MAX_VECTORS else "for a GPU, which searches flat indexes"
            return f"{count} {unit} are {why}" if count > 1 else f"1 {unit.removesuffix('s')} is {why}"
        graph_mb = index_bytes("hnsw", count, self.dimensions) / 2**20
        fits = "fits" if graph_mb <= self.memory_mb else "does not fit"
        return (
            f"{count} {unit} are too many to compare with every one, and with its vectors whole the index of "
            f"about {graph_mb:.0f} MiB {fits} into --memory-mb {self.memory_mb}"
        )


faiss: Any = _faiss  # its type stubs are incomplete

HNSW_EF_CONSTRUCTION = 200
MAX_TRAIN_VECTORS = 262_144
BLOCK_VECTORS = 4_096
"""Number of vectors in memory besides the index: 6 MB at 384 dimensions."""


def build_dense(
    # float32 [count, D], L2-normalized; read in blocks, so they need not fit into memory twice
    vectors: VectorRows,
    kind: IndexKind,
    # An index that the vectors were read from. Of `ivf-pq` it gives the ranges of the 8 bits, so that the
    # same codes are stored again
    like: DenseIndex | None = None,
    *,
    halves: bool = False,  # whether numbers are rounded to the 16 bits of `hnsw`
) -> DenseIndex:
    """Builds an index over vectors; row i is vector i."""
    count, dimensions = vectors.shape
    require_buildable(kind, count)
    index = _empty(kind, count, dimensions)
    if kind == "ivf-pq":
        _train(index, _sample(vectors, count), like)
    _reserve(index, kind, count)
    for start in range(0, count, BLOCK_VECTORS):  # a memory-mapped array is read in blocks
        block = np.ascontiguousarray(vectors[start : start + BLOCK_VECTORS], np.float32)
        index.add(block.astype(np.float16).astype(np.float32) if halves or kind == "hnsw" else block)
    return DenseIndex(index, kind)


def _empty(kind: IndexKind, count: int, dimensions: int) -> Any:
    metric = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dimensions)
    if kind == "hnsw":
        # Half the memory and two thirds of the time of 32 bits, with the same recall (docs/results/serving.md).
        index = faiss.IndexHNSWSQ(dimensions, faiss.ScalarQuantizer.QT_fp16, HNSW_LINKS, metric)
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
    size = min(count, MAX_TRAIN_VECTORS, max(list_count(count) * TRAIN_VECTORS_PER_LIST, 1 << 14))
    rows = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    return np.ascontiguousarray(vectors[rows], np.float32)


class KeptVectors:
    """Vectors of segments, one segment after another; a `VectorRows`."""

    def __init__(
        self,
        # For each segment, a reader of its vectors, and the live rows, int64, ascending
        parts: Sequence[tuple[VectorReader, NDArray[np.int64]]],
        dimensions: int,  # D
    ) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(rows) for _, rows in parts)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        if isinstance(numbers, slice):
            numbers = np.arange(*numbers.indices(len(self)))
        flat = numbers.reshape(-1)
        vectors = np.empty((len(flat), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts, flat, "right") - 1
        for owner, (read, rows) in enumerate(self._parts):
            mine = np.flatnonzero(owners == owner)
            if len(mine):
                vectors[mine] = read(rows[flat[mine] - self._starts[owner]])
        return vectors.reshape(*numbers.shape, self.shape[1])
