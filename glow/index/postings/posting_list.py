"""One word's postings, as plain arrays or packed.

p   postings        m   some rows
"""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.packing import PackedPostings

__all__ = ["POSTINGS_PER_LOOKUP", "PackedList", "PlainList", "PostingList"]

POSTINGS_PER_LOOKUP = 32
"""Looking up one row in a word's postings costs about as much as adding this many of them."""

Found = tuple[NDArray[np.intp], NDArray[np.int64]]


class PostingList(Protocol):
    """The postings of one query word: its documents, and what it adds to each."""

    @property
    def count(self) -> int:
        """p, >= 1."""
        ...

    @property
    def largest(self) -> float:
        """Its largest impact on any document."""
        ...

    @property
    def rows(self) -> NDArray[np.uint32]:
        """uint32 [p], ascending."""
        ...

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """Impacts at places of the list, float32."""
        ...

    def find(self, rows: NDArray[np.uint32]) -> Found:
        """Which of some rows, uint32 [m] ascending, are in it: indexes in `rows`, and for each its place in the list."""
        ...

    def reads_less(self, rows: NDArray[np.uint32]) -> bool:
        """Whether `find` for these rows is less work than adding the whole list."""
        ...

    def bounds(self, rows: NDArray[np.uint32]) -> NDArray[np.float32] | float:
        """Upper bounds of its impacts at some rows, float32 [m], or one bound for all."""
        ...

    def times(self, weight: float) -> "PostingList":
        """The same list with every impact multiplied by a weight > 0."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlainList:
    """A `PostingList` of arrays.

    Attributes:
        rows: uint32 [p], ascending.
        values: float32 [p], or uint8 codes.
        factor: impact per unit of a value; 1 for float32 impacts.
        largest: see `PostingList`.
    """

    rows: NDArray[np.uint32]
    values: NDArray[np.float32] | NDArray[np.uint8]
    factor: np.float32
    largest: float

    @property
    def count(self) -> int:
        """P."""
        return len(self.rows)

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """As in `PostingList`."""
        values = self.values[places]
        if self.factor == 1.0 and values.dtype == np.float32:
            return values  # type: ignore[return-value]
        return np.multiply(values, self.factor, dtype=np.float32)

    def find(self, rows: NDArray[np.uint32]) -> Found:
        """As in `PostingList`."""
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        here = np.flatnonzero(self.rows[places] == rows)
        return here, places[here]

    def reads_less(self, rows: NDArray[np.uint32]) -> bool:
        """As in `PostingList`."""
        return len(rows) * POSTINGS_PER_LOOKUP < len(self.rows)

    def bounds(self, rows: NDArray[np.uint32]) -> float:
        """As in `PostingList`: one number."""
        del rows
        return self.largest

    def times(self, weight: float) -> Self:
        """As in `PostingList`."""
        return replace(self, factor=np.float32(self.factor * weight), largest=self.largest * weight)


@dataclass(frozen=True, slots=True, eq=False)
class PackedList:
    """A `PostingList` that is decoded on demand.

    Attributes:
        packed: rows and codes.
        least, step: impact of code 0, and the increase per code.
        largest: see `PostingList`.
    """

    packed: PackedPostings
    least: np.float32
    step: np.float32
    largest: float

    @property
    def count(self) -> int:
        """P."""
        return self.packed.count

    @property
    def rows(self) -> NDArray[np.uint32]:
        """As in `PostingList`; cached after decoding."""
        return self.packed.rows

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """As in `PostingList`."""
        return self._decoded(self.packed.codes[places])

    def find(self, rows: NDArray[np.uint32]) -> Found:
        """As in `PostingList`; decodes only the rows' blocks, or all."""
        return self.packed.find(rows)

    def reads_less(self, rows: NDArray[np.uint32]) -> bool:
        """As in `PostingList`."""
        return self.packed.reads_less(rows)

    def bounds(self, rows: NDArray[np.uint32]) -> NDArray[np.float32] | float:
        """As in `PostingList`: the largest impact of each row's block."""
        codes = self.packed.block_codes(rows)
        return self.largest if codes is None else self._decoded(codes)

    def times(self, weight: float) -> Self:
        """As in `PostingList`."""
        least, step = np.float32(self.least * weight), np.float32(self.step * weight)
        return replace(self, least=least, step=step, largest=self.largest * weight)

    def _decoded(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        impacts = np.multiply(codes, self.step, dtype=np.float32)
        impacts += self.least
        return impacts
