"""Rankings, masks of rows, parameters of vector search, and the deadline of the current search."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Ranking = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores float32 [k] descending, and rows int64 [k] of the documents, each once."""


def best(
    scores: NDArray[np.float32],  # float32 [m], in any order
    rows: NDArray[np.int64],  # int64 [m], each once
    k: int,  # maximum number of hits, >= 1
    order: NDArray[np.uint32] | None = None,  # uint32 [n], each document's rank among ties; None: its row
) -> Ranking:
    """The k best of some scored documents; ties for the last place are resolved by `order`."""
    if len(scores) > k:
        is_best = scores >= np.partition(scores, -k)[-k]
        scores, rows = scores[is_best], rows[is_best]
    ties = rows if order is None else order[rows]
    places = np.lexsort((ties, -scores))[:k]
    return scores[places], rows[places]


# Above this fraction of n, caching 8 bytes per row costs more memory than recomputing them costs time.
KEPT_SHARE = 8


class RowMask:
    """Rows that a search may return; immutable, so safe to share between threads."""

    __slots__ = ("_rows", "count", "expression", "mask", "packed")

    def __init__(
        self,
        mask: NDArray[np.bool_],  # bool [n]; this object takes ownership
    ) -> None:
        self.mask = mask
        # A filter that matches every row of the mask and few others, for a vector store; None unless `tell`
        # was called
        self.expression: Any = None
        self.mask.flags.writeable = False
        self.count = int(np.count_nonzero(mask))
        # uint8 [n / 8], the mask as bits, lowest first, for FAISS
        self.packed: NDArray[np.uint8] = np.packbits(mask, bitorder="little")
        self._rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.mask)

    def tell(self, expression: Any) -> None:
        """Stores the filter that it was computed from; to be called before the mask is shared."""
        self.expression = expression

    @property
    def rows(self) -> NDArray[np.int64]:
        """The allowed rows, int64 [count], ascending."""
        if self._rows is not None:
            return self._rows
        rows = np.flatnonzero(self.mask)
        if self._is_small():
            self._rows = rows
        return rows

    @property
    def size_bytes(self) -> int:
        """Its maximum size in memory."""
        return self.mask.nbytes + self.packed.nbytes + (8 * self.count if self._is_small() else 0)

    def _is_small(self) -> bool:
        return self.count * KEPT_SHARE <= len(self.mask)


IndexKind = Literal["flat", "hnsw", "ivf-pq"]
KINDS: tuple[IndexKind, ...] = ("flat", "hnsw", "ivf-pq")
# docs/results/serving.md has the measurements behind these figures.
HNSW_EF_SEARCH = 96
DEFAULT_NPROBE = 64
TRAIN_VECTORS_PER_LIST = 64
VectorReader = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Rows int64 [m] -> vectors float32 [m, D]."""


@dataclass(frozen=True, slots=True)
class SearchParams:
    """Search parameters; None takes the index's default."""

    ef_search: int | None = None  # candidates that `hnsw` keeps, 1 to 10,000
    nprobe: int | None = None  # number of inverted lists that `ivf-pq` searches, 1 to 65,536
    exact: bool = False  # compare with every stored vector, for any kind; those of `ivf-pq` have 8 bits


def list_count(count: int) -> int:
    """Number of inverted lists: 4·sqrt(count), limited by the size of the training set."""
    return int(min(max(4 * count**0.5, 1), max(count // TRAIN_VECTORS_PER_LIST, 1)))


def products(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner product of each vector float32 [m, D] with one, bit for bit the same in any batch, unlike a BLAS product's."""
    scores: NDArray[np.float32] = np.einsum("ij,j->i", vectors, vector)
    return scores


WAITING_THREADS = 32
_until: ContextVar[float] = ContextVar("wanted_until", default=math.inf)
_pool = ThreadPoolExecutor(WAITING_THREADS, "store")  # starts threads when they are needed


@contextmanager
def wanted_until(
    at: float,  # in seconds of `time.perf_counter()`; infinity: none
) -> Iterator[None]:
    """Sets the deadline of the search in this block."""
    token = _until.set(at)
    try:
        yield
    finally:
        _until.reset(token)


def time_left_s() -> float:
    """Seconds left for this thread's search, >= 0; infinity without a deadline."""
    return max(_until.get() - time.perf_counter(), 0.0)


def run_all(
    calls: Sequence[Callable[[], Any]],
    *,
    # Whether they wait for a store, so that they run at once, each with the deadline of this thread
    waits: bool,
) -> list[Any]:
    """Results of some calls, in their order."""
    if not waits:
        return [call() for call in calls]
    started = [_pool.submit(copy_context().run, call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        for each in started:
            each.exception()  # waits
    return [first, *(each.result() for each in started)]


def set_numpy_threads(threads: int) -> None:
    """Limits NumPy's products in this process to some threads each, >= 1.

    By default each product uses all cores: its threads wait actively for each other, which triples a hybrid search's CPU time on two cores.
    This only affects NumPy's library, not that of FAISS. Call it in the main thread: once that has called it, OpenBLAS ignores other
    threads.
    """
    ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=threads)
