"""Cosines row by row: the score of a vector is the same to the bit whatever other vectors are scored beside it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["products"]


def products(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner product of each vector with one; a product by BLAS would round each by what is beside it.

    Args:
        vectors: float32 [m, D].
        vector: float32 [D].

    Returns:
        float32 [m].
    """
    found: NDArray[np.float32] = np.einsum("ij,j->i", vectors, vector)
    return found
