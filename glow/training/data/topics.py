"""Topics of queries: clusters of their vectors. A batch of one topic has documents that are hard to tell apart.

Hofstätter et al. 2021, TAS-B, https://arxiv.org/abs/2104.06967, section 3.1: spherical k-means over query vectors.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["topics_of"]

ROUNDS = 10


def topics_of(vectors: NDArray[np.float32], topics: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each vector, int64 [n], in 0 to `topics` - 1.

    Args:
        vectors: float32 [n, H], L2-normalized, n >= 1.
        topics: number of clusters, >= 1; at most n result.
        seed: seed of the initial centers.
    """
    random = np.random.default_rng(seed)
    centres = vectors[random.choice(len(vectors), min(topics, len(vectors)), replace=False)]
    labels = np.zeros(len(vectors), np.int64)
    for _ in range(ROUNDS):
        labels = np.argmax(vectors @ centres.T, axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
    return labels
