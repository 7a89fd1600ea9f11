"""The dense index: FAISS over L2-normalized vectors, inner product = cosine.

n   queries     k   hits per query    D   dimensions
"""

import re
import threading
from contextlib import nullcontext
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from glow.errors import BuildError, DeviceError, FormatError, MismatchError, QueryError
from glow.index.ranking import (
    DEFAULT_NPROBE,
    HNSW_EF_SEARCH,
    IndexKind,
    RowMask,
    SearchParams,
    products,
)

faiss: Any = _faiss  # its type stubs are incomplete

STEP_VECTORS = 64
"""A step of a graph search takes as long as about this many comparisons: 35 to 96, more in larger graphs."""

# For compressed vectors, in nanoseconds, timed over 200,000; docs/results/scale.md has filters at ten million.
SKIPPED_NS, COMPARED_NS, CODE_NS = 1.5, 25.0, 16.0
"""Skipping a row that is not allowed, comparing with an 8-bit vector, reading a code in a list."""


def require_fit(allowed: RowMask, count: int, device: str) -> None:
    """Refuses an unusable mask."""
    if len(allowed) != count:
        raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {count} vectors")
    if device != "cpu":
        raise QueryError(
            "an index on a GPU cannot be filtered; remove the filter, or serve with --device cpu"
        )


def should_scan(allowed: int, count: int, ef: int) -> bool:
    """Whether comparing with every allowed vector, at least one, costs no more than an equivalent graph search."""
    return allowed <= STEP_VECTORS * widened_ef(ef, allowed, count)


def should_scan_codes(allowed: int, count: int, probes: int, lists: int) -> bool:
    """The same for compressed vectors: compares every allowed 8-bit vector with the codes of an equivalent number of lists."""
    looked_at = count * min(widened_probes(probes, allowed, count), lists) / lists
    return SKIPPED_NS * count + COMPARED_NS * allowed <= CODE_NS * looked_at


def widened_ef(ef: int, allowed: int, count: int) -> int:
    """Candidates of a graph search that finds as much among the allowed vectors as `ef` finds among all."""
    return ceil(ef * sqrt(count / allowed))


def widened_probes(probes: int, allowed: int, count: int) -> int:
    """Number of lists to search: in proportion, so that as many allowed vectors are compared as without a filter."""
    return ceil(probes * count / allowed)


def rows_of(allowed: RowMask) -> Any:
    """FAISS parameters of a search that only visits the allowed uncompressed vectors."""
    return faiss.SearchParameters(sel=faiss.IDSelectorArray(allowed.rows))


def bitmap_of(allowed: RowMask) -> Any:
    """A FAISS selector that checks each vector against the mask."""
    return faiss.IDSelectorBitmap(allowed.packed)


# docs/results/serving.md has the measurements behind these figures.
RESCORED, RESCORED_OF_MANY, MANY_VECTORS = 10, 20, 4_000_000
"""Vectors that `ivf-pq` scores again per hit; twice as many at this number of vectors: docs/results/scale.md."""
MIN_READ_LIMIT_BYTES = 2 << 30
WRITE_BYTES = 1 << 20
_NOT_BETWEEN = np.int32(-0x7000_2000)  # of a shifted number of 16 bits, all but copies of its sign
_EXPONENTS = np.float32(2.0**112)  # the difference of what exponents of 5 and of 8 bits start from
GPU_MAX_HITS = 2048
"""FAISS's own limit on a GPU."""
_SIGNATURE = re.compile(r"^Error in .*? at \S+:\d+: (Error: )?", re.DOTALL)


class DenseIndex:
    """A FAISS index of one kind on one device; safe to search from many threads."""

    is_remote = False

    def __init__(self, index: Any, kind: IndexKind, device: str = "cpu") -> None:
        self._index = index
        self.kind = kind
        self.device = device
        self.dimensions = int(index.d)
        # Read by exact searches: 8-bit vectors of `ivf-pq`, and the vectors below the graph of `hnsw`.
        part = {"hnsw": "storage", "ivf-pq": "refine_index"}.get(kind)
        self._stored: Any = index if part is None else faiss.downcast_index(getattr(index, part))
        self._halves: NDArray[np.int16] | None = None  # of `hnsw`: float16 [n, D] in FAISS's memory
        if kind == "hnsw" and len(self):
            codes = faiss.rev_swig_ptr(self._stored.codes.data(), len(self) * 2 * self.dimensions)
            self._halves = codes.view(np.int16).reshape(-1, self.dimensions)
        self._lists: Any = faiss.downcast_index(index.base_index) if kind == "ivf-pq" else index
        self._rescored = RESCORED if int(index.ntotal) < MANY_VECTORS else RESCORED_OF_MANY
        # FAISS allows one search at a time with a GPU's resources, any number on the CPU.
        self._turn: Any = threading.Lock() if device == "cuda" else nullcontext()

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(
        self,
        vectors: NDArray[np.float32],  # float32 [n, D], L2-normalized
        k: int,  # hits per query, >= 1; fewer if the index has fewer vectors, or fewer are allowed
        # Search parameters; with few allowed rows, an approximate search is widened or becomes exact
        params: SearchParams | None = None,
        allowed: RowMask | None = None,  # rows that may be found; None allows all
        # Rank of each row for ties, smaller first; None: the row itself
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Finds the k nearest vectors of each query.

        Returns scores float32 [n, k'] descending, in [-1, 1], and rows int64 [n, k'], k' = min(k, allowed vectors);
        ties go to the smaller rank, in an approximate search among its candidates. If it finds fewer than k', the rest
        has row -1 and score -inf.
        """
        if allowed is not None:
            require_fit(allowed, len(self), self.device)
        k = min(k, len(self) if allowed is None else allowed.count)
        if k == 0:
            return np.empty((len(vectors), 0), np.float32), np.empty((len(vectors), 0), np.int64)
        scores, rows = self._find(vectors, k, params or SearchParams(), allowed)
        if self.has_vectors:
            scores = self._scored_again(vectors, scores, rows)
        if (scores[:, :-1] > scores[:, 1:]).all():
            return scores[:, :k], rows[:, :k]  # FAISS sorts, and nothing ties
        ranks = rows if order is None else order[rows]
        best = np.lexsort((ranks, -scores), axis=-1)[:, :k]
        return np.take_along_axis(scores, best, -1), np.take_along_axis(rows, best, -1)

    def _find(
        self, vectors: NDArray[np.float32], k: int, params: SearchParams, allowed: RowMask | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """At least k hits per query by score, ties in any order."""
        if self._is_scan(params, k, allowed):
            return self._search_exactly(vectors, k, params, allowed)
        index, options = self._plan(params, k, allowed)
        scores, rows = self._run(index, options, vectors, k)
        if allowed is not None and self.kind == "hnsw" and (rows < 0).any():
            return self._search_exactly(vectors, k, params, allowed)  # the graph passed by too many
        return np.where(rows < 0, np.float32(-np.inf), scores), rows

    def _scored_again(
        self, vectors: NDArray[np.float32], scores: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The scores of `score`: the last bits of FAISS's depend on how it searched, and among which rows."""
        again = scores.copy()
        for vector, its_scores, its_rows in zip(vectors, again, rows, strict=True):
            met = its_rows >= 0
            its_scores[met] = self.score(vector, its_rows[met])
        return again

    def _is_scan(self, params: SearchParams, k: int, allowed: RowMask | None) -> bool:
        """Whether to compare with every allowed vector."""
        if params.exact or self.kind == "flat":
            return True
        if allowed is None:
            return False
        if self.kind == "ivf-pq":
            return should_scan_codes(
                allowed.count, len(self), params.nprobe or DEFAULT_NPROBE, int(self._lists.nlist)
            )
        return should_scan(allowed.count, len(self), max(params.ef_search or HNSW_EF_SEARCH, k))

    def _search_exactly(
        self, vectors: NDArray[np.float32], k: int, params: SearchParams, allowed: RowMask | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """At least k hits per query, and all ties with the last of them.

        FAISS keeps arbitrary rows of those that tie for the last place. Without this, pages of one query could
        overlap, and documents with the same text could appear and disappear.
        """
        index, options = self._exact_plan(params, k, allowed)
        most = len(self) if allowed is None else allowed.count
        most = min(most, GPU_MAX_HITS) if self.device == "cuda" else most
        fetched = min(k + 1, most)
        while True:
            scores, rows = self._run(index, options, vectors, fetched)
            if fetched == most or not (scores[:, k - 1] == scores[:, -1]).any():
                return scores, rows
            fetched = min(max(2 * fetched, 64), most)

    def _run(
        self, index: Any, options: Any, vectors: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        with self._turn:
            result: tuple[NDArray[np.float32], NDArray[np.int64]] = index.search(vectors, k, params=options)
        return result

    def _exact_plan(self, params: SearchParams, k: int, allowed: RowMask | None) -> tuple[Any, Any]:
        """As `_plan`, to compare with every allowed vector."""
        if allowed is None:
            return self._stored, None
        # Only for uncompressed vectors does FAISS visit just the rows of a list.
        return self._stored, faiss.SearchParameters(
            sel=bitmap_of(allowed)
        ) if self.kind == "ivf-pq" else rows_of(allowed)

    def _plan(self, params: SearchParams, k: int, allowed: RowMask | None) -> tuple[Any, Any]:
        """The FAISS object to search, and its FAISS parameters."""
        selector = {} if allowed is None else {"sel": bitmap_of(allowed)}
        if self.kind == "hnsw":
            ef = params.ef_search or HNSW_EF_SEARCH
            if allowed is not None:
                ef = widened_ef(max(ef, k), allowed.count, len(self))
            return self._index, faiss.SearchParametersHNSW(efSearch=ef, **selector)
        probes = faiss.SearchParametersIVF(nprobe=self._probes(params, allowed), **selector)
        return self._index, faiss.IndexRefineSearchParameters(
            k_factor=self._rescored, base_index_params=probes
        )

    def _probes(self, params: SearchParams, allowed: RowMask | None) -> int:
        lists = int(self._lists.nlist)
        probes = params.nprobe or DEFAULT_NPROBE
        if allowed is not None:
            probes = widened_probes(probes, allowed.count, len(self))
        return min(probes, lists)

    @property
    def has_vectors(self) -> bool:
        """Whether vectors can be read by row: on the CPU."""
        return self.device == "cpu"

    @property
    def ranges(self) -> NDArray[np.float32] | None:
        """Minimum and width of each dimension's range of 8-bit values, float32 [2·D]; None except for `ivf-pq`."""
        if self.kind != "ivf-pq":
            return None
        ranges: NDArray[np.float32] = faiss.vector_to_array(self._stored.sq.trained)
        return ranges

    def score(
        self,
        vector: NDArray[np.float32],  # float32 [D], of one query, L2-normalized
        rows: NDArray[np.int64],  # int64 [m], each in 0 to n - 1
    ) -> NDArray[np.float32]:
        """The true scores of given rows, bit for bit those of `search`.

        Returns float32 [m] in [-1, 1]; a row's score does not depend on the others.
        """
        if not self.has_vectors:
            raise QueryError(f"an index on {self.device} cannot score given documents")
        return products(self.vectors(rows), vector)

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows int64 [m], float32 [m, D]; only if `has_vectors`.

        Those of `hnsw` have 16 bits a number, those of `ivf-pq` 8, with an error of half a step.
        """
        vectors = np.empty((0, self.dimensions), np.float32)
        if self._halves is not None:
            # A sixth of FAISS's or numpy's time: sign, exponent and fraction move to their places in 32 bits.
            bits = self._halves[rows].astype(np.int32) << 13
            bits &= _NOT_BETWEEN
            vectors = bits.view(np.float32)
            vectors *= _EXPONENTS
        elif len(rows):
            vectors = self._stored.reconstruct_batch(np.ascontiguousarray(rows, np.int64))
        return vectors

    def save(self, path: Path) -> None:
        """Writes the index in CPU form from any device; not during searches."""
        index = faiss.index_gpu_to_cpu(self._index) if self.device == "cuda" else self._index
        try:
            # FAISS's own writer only prints when closing the file fails, for example on a full disk.
            with path.open("wb") as file:
                faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, WRITE_BYTES))
        except OSError as error:
            raise BuildError(f"cannot write {path.name}: {error.strerror}; the index is not built") from error

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> "DenseIndex":
        """Opens an index file with a verified checksum; on the CPU its vectors are memory-mapped."""
        # A damaged size field must not allocate without bound.
        faiss.set_deserialization_vector_byte_limit(max(path.stat().st_size, MIN_READ_LIMIT_BYTES))
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise FormatError(
                f"FAISS cannot read {path.name}: {_reason(error)}; rebuild the index"
            ) from error
        kind = _kind_of(index)
        if device == "cuda":
            return cls(to_gpu(index, kind), kind, "cuda")
        return cls(index, kind)


def require_device(kind: str, device: str) -> None:
    """Refuses a missing device, or one that cannot hold a kind, before any long work."""
    if device == "cpu":
        return
    devices = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    if devices < 1:
        raise DeviceError(
            "device 'cuda' needs a GPU, but this faiss sees no GPU; install the GPU packages (docs/install.md, GPU), "
            "or use --device cpu"
        )
    if kind in ("hnsw", "ivf-pq"):
        raise DeviceError(f"an {kind} index cannot run on a GPU; choose flat")


def set_threads(threads: int) -> None:
    """Sets the number of threads of FAISS in this process, >= 1."""
    faiss.omp_set_num_threads(threads)


def to_gpu(index: Any, kind: IndexKind) -> Any:
    """A copy of a FAISS index on the first GPU."""
    require_device(kind, "cuda")
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


def _kind_of(index: Any) -> IndexKind:
    if index.metric_type == faiss.METRIC_INNER_PRODUCT:
        if isinstance(index, faiss.IndexRefine) and _is_compressed(index):
            return "ivf-pq"
        if isinstance(index, faiss.IndexHNSWSQ):
            return "hnsw"
        if isinstance(index, faiss.IndexFlat):
            return "flat"
    raise FormatError(
        f"the index file holds a {type(index).__name__} of metric {index.metric_type}, "
        "which this GLOW does not write; rebuild the index"
    )


def _is_compressed(index: Any) -> bool:
    """Whether an index that scores again is one of GLOW's: lists of 4-bit codes, and 8-bit vectors."""
    base, stored = faiss.downcast_index(index.base_index), faiss.downcast_index(index.refine_index)
    return (
        isinstance(base, faiss.IndexIVFPQFastScan)
        and isinstance(stored, faiss.IndexScalarQuantizer)
        and stored.sq.qtype == faiss.ScalarQuantizer.QT_8bit
        and index.ntotal == base.ntotal == stored.ntotal
    )


def _reason(error: RuntimeError) -> str:
    """The message of FAISS, without the C++ signature in front."""
    return " ".join(_SIGNATURE.sub("", str(error)).split())
