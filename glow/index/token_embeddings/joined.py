"""The token embeddings of a base and a delta as one store."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glow.index.segments import BaseAndDelta
from glow.index.token_embeddings.format import StatesHeader
from glow.index.token_embeddings.view import StoredStates

__all__ = ["SegmentedStates"]


class SegmentedStates:
    """Token embeddings of both, from one re-ranker in one precision; arguments as for `TokenEmbeddingStore`.

    Args:
        both: the stores.
    """

    def __init__(self, both: BaseAndDelta[StoredStates]) -> None:
        self._both = both
        self.header: StatesHeader = both.base.header

    def __len__(self) -> int:
        return len(self._both.segments)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of documents, int64 [B]."""
        return self._both.gather(rows, lambda reader, here: reader.lengths(here))

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token embeddings and mask of documents, padded at the end."""
        lengths = self.lengths(rows)
        mask = (np.arange(int(lengths.max())) < lengths[:, None]).astype(np.int64)
        states = np.zeros((*mask.shape, self.header.size), np.float32)
        for store, own, here in self._split(rows):
            found, _ = store.read(own)
            states[here, : found.shape[1]] = found
        return states, mask

    def _split(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[StoredStates, NDArray[np.int64], NDArray[np.int64]]]:
        """Each store with some of the rows: those rows in it, and their indexes."""
        first = self._both.segments.base
        old, new = np.flatnonzero(rows < first), np.flatnonzero(rows >= first)
        if len(old):
            yield self._both.base, rows[old], old
        if len(new):
            yield self._both.delta, rows[new] - first, new
