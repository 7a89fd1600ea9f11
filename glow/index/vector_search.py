"""Vector search with FAISS or a server: kinds of index, search parameters, and cosines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DEFAULT_NPROBE", "HNSW_EF_SEARCH", "KINDS", "TRAIN_VECTORS_PER_LIST", "IndexKind", "SearchParams", "VectorReader",
    "list_count", "products",
]  # fmt: skip

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
    """Search parameters; None takes the index's default.

    Attributes:
        ef_search: candidates that `hnsw` keeps, 1 to 10,000.
        nprobe: number of inverted lists that `ivf-pq` searches, 1 to 65,536.
        exact: compare with every stored vector, for any kind; those of `ivf-pq` have 8 bits.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    exact: bool = False


def list_count(count: int) -> int:
    """Number of inverted lists: 4·sqrt(count), limited by the size of the training set."""
    return int(min(max(4 * count**0.5, 1), max(count // TRAIN_VECTORS_PER_LIST, 1)))


def products(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner product of each vector with one; a vector's score is bit for bit the same in any batch.

    The rounding of a BLAS product would depend on the batch.

    Args:
        vectors: float32 [m, D].
        vector: float32 [D].

    Returns:
        float32 [m].
    """
    found: NDArray[np.float32] = np.einsum("ij,j->i", vectors, vector)
    return found
