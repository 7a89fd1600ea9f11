"""Vectors that lie in clusters, as those of documents do, and queries near some of them."""

import numpy as np
import pytest
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
COUNT, DIMENSIONS, QUERIES = 3000, 32, 40


def unit(vectors: NDArray[np.float64]) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def vectors() -> Vectors:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((60, DIMENSIONS))
    chosen = centres[generator.integers(60, size=COUNT)]
    return unit(chosen + 0.6 * generator.standard_normal((COUNT, DIMENSIONS)))


@pytest.fixture(scope="session")
def queries(vectors: Vectors) -> Vectors:
    generator = np.random.default_rng(1)
    rows = generator.choice(COUNT, QUERIES, replace=False)
    return unit(vectors[rows] + 0.1 * generator.standard_normal((QUERIES, DIMENSIONS)))
