"""Storage of an index's postings: plain arrays that are sliced, or packed bytes that are decoded.

p   postings        v   words
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.packing import LARGEST_CODE, PackedPostings
from glow.index.postings.posting_list import PackedList, PlainList, PostingList

__all__ = ["Block", "Lists", "PackedLists", "PlainLists"]


class Block(NamedTuple):
    """Some postings: the word of each, its row, its impact (or code) and its cause."""

    words: NDArray[np.int64]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None


class Lists(Protocol):
    """The postings of all words."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """int64 [v + 1], start of each word's postings among all."""
        ...

    @property
    def maxima(self) -> NDArray[np.float32]:
        """float32 [v], each word's largest impact."""
        ...

    def list(self, word: int, times: float) -> PostingList:
        """A word's postings, with every impact multiplied by `times`."""
        ...

    def cause(self, word: int, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        ...

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings, in order, in blocks of about `most`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlainLists:
    """Memory-mapped arrays.

    Attributes:
        starts, maxima: see `Lists`.
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

    def list(self, word: int, times: float) -> PlainList:
        """As in `Lists`."""
        held = self._held(word)
        return PlainList(
            self.rows[held],
            self.impacts[held],
            np.float32(self.unit * times),
            float(self.maxima[word]) * times,
        )

    def cause(self, word: int, row: int) -> int | None:
        """As in `Lists`."""
        if self.causes is None:
            return None
        held = self._held(word)
        at = int(np.searchsorted(self.rows[held], np.uint32(row)))
        is_there = at < held.stop - held.start and int(self.rows[held][at]) == row
        return int(self.causes[held][at]) if is_there else None

    def blocks(self, most: int) -> Iterator[Block]:
        """As in `Lists`; codes instead of impacts, if they are learned."""
        for start in range(0, len(self.rows), most):
            block = slice(start, min(start + most, len(self.rows)))
            words = np.searchsorted(self.starts, np.arange(block.start, block.stop), "right") - 1
            causes = None if self.causes is None else self.causes[block]
            yield Block(words, self.rows[block], self.impacts[block], causes)

    def _held(self, word: int) -> slice:
        return slice(int(self.starts[word]), int(self.starts[word + 1]))


@dataclass(frozen=True, slots=True, eq=False)
class PackedLists:
    """Memory-mapped bytes, of which a search decodes what it needs.

    Attributes:
        starts, maxima: see `Lists`.
        minima: float32 [v], each word's smallest impact.
        widths: uint8 [v], of each list.
        places: int64 [v + 1], start of each list's bytes.
        data: uint8, all lists as written by `pack_postings`.
        documents: n.
    """

    starts: NDArray[np.int64]
    maxima: NDArray[np.float32]
    minima: NDArray[np.float32]
    widths: NDArray[np.uint8]
    places: NDArray[np.int64]
    data: NDArray[np.uint8]
    documents: int

    def list(self, word: int, times: float) -> PackedList:
        """As in `Lists`."""
        least, largest = float(self.minima[word]), float(self.maxima[word])
        step = (largest - least) / LARGEST_CODE
        return PackedList(
            self._packed(word), np.float32(least * times), np.float32(step * times), largest * times
        )

    def cause(self, word: int, row: int) -> int | None:
        """As in `Lists`: None, because learned impacts are never packed."""
        del word, row
        return None

    def blocks(self, most: int) -> Iterator[Block]:
        """As in `Lists`."""
        waiting: list[Block] = []
        size = 0
        for word in range(len(self.maxima)):
            postings = self.list(word, 1.0)
            rows = postings.rows
            waiting.append(Block(np.full(len(rows), word, np.int64), rows, postings.impacts(), None))
            size += len(rows)
            if size >= most:
                yield _joined(waiting)
                waiting, size = [], 0
        if waiting:
            yield _joined(waiting)

    def _packed(self, word: int) -> PackedPostings:
        data = self.data[int(self.places[word]) : int(self.places[word + 1])]
        count = int(self.starts[word + 1] - self.starts[word])
        return PackedPostings(data, count, self.documents, int(self.widths[word]))


def _joined(blocks: list[Block]) -> Block:
    words, rows, impacts = (np.concatenate([block[part] for block in blocks]) for part in range(3))
    return Block(words, rows, impacts, None)
