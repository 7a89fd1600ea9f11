"""Storage of an index's postings: memory-mapped arrays that are sliced.

p   postings        v   words
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.posting_list import PostingList

__all__ = ["Block", "Lists"]


class Block(NamedTuple):
    """Some postings: the word of each, its row, its impact (or code) and its cause."""

    words: NDArray[np.int64]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The postings of all words.

    Attributes:
        starts: int64 [v + 1], start of each word's postings among all.
        maxima: float32 [v], each word's largest impact.
        rows: uint32 [p], the documents of each word, ascending.
        impacts: float32 [p], finite and > 0; or uint8 codes > 0, to be multiplied by the unit.
        causes: uint8 [p] of learned impacts; None if impacts are not learned.
        unit: impact of code 1.
    """

    starts: NDArray[np.int64]
    maxima: NDArray[np.float32]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None
    unit: float = 1.0

    def list(self, word: int, times: float) -> PostingList:
        """A word's postings, with every impact multiplied by `times`."""
        held = self._held(word)
        return PostingList(
            self.rows[held],
            self.impacts[held],
            np.float32(self.unit * times),
            float(self.maxima[word]) * times,
        )

    def cause(self, word: int, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        if self.causes is None:
            return None
        held = self._held(word)
        at = int(np.searchsorted(self.rows[held], np.uint32(row)))
        is_there = at < held.stop - held.start and int(self.rows[held][at]) == row
        return int(self.causes[held][at]) if is_there else None

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings, in order, in blocks of about `most`; codes instead of impacts, if they are learned."""
        for start in range(0, len(self.rows), most):
            block = slice(start, min(start + most, len(self.rows)))
            words = np.searchsorted(self.starts, np.arange(block.start, block.stop), "right") - 1
            causes = None if self.causes is None else self.causes[block]
            yield Block(words, self.rows[block], self.impacts[block], causes)

    def _held(self, word: int) -> slice:
        return slice(int(self.starts[word]), int(self.starts[word + 1]))
