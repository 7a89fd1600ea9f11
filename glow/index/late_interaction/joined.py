"""The token embeddings of a base and a delta as one store."""

import numpy as np
from numpy.typing import NDArray

from glow.index.late_interaction.format import LateHeader
from glow.index.late_interaction.view import StoredLate
from glow.index.segments import BaseAndDelta

__all__ = ["SegmentedLate"]


class SegmentedLate:
    """Token embeddings of both, from one model and of one size; arguments as for `LateTokens`.

    Args:
        both: the stores.
    """

    def __init__(self, both: BaseAndDelta[StoredLate]) -> None:
        self._both = both
        self.header: LateHeader = both.base.header

    def __len__(self) -> int:
        return len(self._both.segments)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        return self._both.gather(rows, lambda reader, here: reader.lengths(here))

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Codes of rows, and the start of each row."""
        lengths, first = self.lengths(rows), self._both.segments.base
        is_new = np.repeat(rows >= first, lengths)
        codes = np.empty((len(is_new), self.header.size // 8), np.uint8)
        codes[~is_new] = self._both.base.read(rows[rows < first])[0]
        codes[is_new] = self._both.delta.read(rows[rows >= first] - first)[0]
        return codes, np.cumsum(lengths) - lengths

    def places(self, row: int) -> NDArray[np.uint16]:
        """Positions of the tokens that a row's codes represent."""
        store, own = self._both.owner(row)
        return store.places(own)
