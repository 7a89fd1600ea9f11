"""The vectors of a base and a delta as one index."""

import numpy as np
from numpy.typing import NDArray

from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.index.segments import BaseAndDelta
from glow.index.vector_search import IndexKind, SearchParams
from glow.index.vectors.stored import StoredVectors

__all__ = ["SegmentedDense"]


class SegmentedDense:
    """Vectors of both: the base is searched by its kind, the delta exactly. Arguments as for `DenseIndex`.

    Args:
        both: base and delta; the delta is `flat`.
    """

    def __init__(self, both: BaseAndDelta[StoredVectors]) -> None:
        self._both = both
        self.base = both.base
        self.delta = both.delta
        self.segments = both.segments
        self.kind: IndexKind = both.base.kind
        self.device, self.is_remote = both.base.device, both.base.is_remote
        self.dimensions = both.base.dimensions

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def has_vectors(self) -> bool:
        """Whether full vectors can be read by row."""
        return self.base.has_vectors and self.delta.has_vectors

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k nearest vectors of each query in both, without deleted ones."""

        def find(part: StoredVectors, mask: RowMask | None, ranks: NDArray[np.uint32] | None) -> Ranking:
            return part.search(vectors, k, params if part is self.base else None, mask, ranks)

        return self._both.search(find, k, allowed, order)

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows."""
        return self._both.gather(rows, lambda part, its: part.score(vector, its))

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows, float32 [m, D]."""
        return self._both.gather(rows, lambda part, its: part.vectors(its))
