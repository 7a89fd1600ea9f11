"""One word's postings.

p   postings        m   some rows
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["POSTINGS_PER_LOOKUP", "PostingList"]

POSTINGS_PER_LOOKUP = 32
"""Looking up one row in a word's postings costs about as much as adding this many of them."""

Found = tuple[NDArray[np.intp], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class PostingList:
    """The postings of one query word: its documents, and what it adds to each.

    Attributes:
        rows: uint32 [p], ascending.
        values: float32 [p], or uint8 codes.
        factor: impact per unit of a value; 1 for float32 impacts.
        largest: its largest impact on any document.
    """

    rows: NDArray[np.uint32]
    values: NDArray[np.float32] | NDArray[np.uint8]
    factor: np.float32
    largest: float

    @property
    def count(self) -> int:
        """Number of postings, >= 1."""
        return len(self.rows)

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """Impacts at places of the list, float32."""
        values = self.values[places]
        if self.factor == 1.0 and values.dtype == np.float32:
            return values  # type: ignore[return-value]
        return np.multiply(values, self.factor, dtype=np.float32)

    def find(self, rows: NDArray[np.uint32]) -> Found:
        """Which of some rows, uint32 [m] ascending, are in it: indexes in `rows`, and for each its place in the list."""
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        here = np.flatnonzero(self.rows[places] == rows)
        return here, places[here]

    def times(self, weight: float) -> Self:
        """The same list with every impact multiplied by a weight > 0."""
        return replace(self, factor=np.float32(self.factor * weight), largest=self.largest * weight)
