"""How vectors are searched, whatever holds them, FAISS or a server: kinds of index, how thoroughly, and cosines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DEFAULT_NPROBE", "HNSW_EF_SEARCH", "KINDS", "TRAIN_VECTORS_PER_LIST", "IndexKind", "SearchParams", "VectorReader",
    "list_count", "products",
]  # fmt: skip

IndexKind = Literal["flat", "hnsw", "ivf-flat", "ivf-pq"]
KINDS: tuple[IndexKind, ...] = ("flat", "hnsw", "ivf-flat", "ivf-pq")
# docs/results/serving.md has the measurements behind these figures.
HNSW_EF_SEARCH = 96
DEFAULT_NPROBE = 64
TRAIN_VECTORS_PER_LIST = 64
VectorReader = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Rows int64 [m] -> vectors float32 [m, D]."""


@dataclass(frozen=True, slots=True)
class SearchParams:
    """How thoroughly to search; None takes the index's default.

    Attributes:
        ef_search: candidates that `hnsw` keeps, 1 to 10,000.
        nprobe: lists that `ivf-*` looks into, 1 to 65,536.
        exact: compare with every vector as it is stored, whatever the kind; of `ivf-pq`, in 8 bits.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    exact: bool = False


def list_count(count: int) -> int:
    """Lists of an IVF index: 4·sqrt(count), bounded by what its training set can fill."""
    return int(min(max(4 * count**0.5, 1), max(count // TRAIN_VECTORS_PER_LIST, 1)))


def products(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner product of each vector with one: the score of a vector is the same to the bit whatever is scored beside it.

    A product by BLAS would round each by what is beside it.

    Args:
        vectors: float32 [m, D].
        vector: float32 [D].

    Returns:
        float32 [m].
    """
    found: NDArray[np.float32] = np.einsum("ij,j->i", vectors, vector)
    return found
