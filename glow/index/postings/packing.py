"""One list of postings in few bits: rows in Elias-Fano coding, impacts in 8 bits, and the maximum of every block.

The lowest `width` bits of each row are stored side by side; the others, ascending, are a bit string with a 1 for every row
and a 0 for every step of 2^width rows (Elias, 1974; Vigna, 2013, section 3: https://arxiv.org/abs/1206.4300). That takes about
width + 2 bits per posting, for a collection of any size. A block is 128 such steps, about as many postings. If there are
several, a directory has the start and the largest code of each, so that irrelevant blocks are skipped.

    maxima [r] | directory [r] of uint32 | highs [(p + n / 2^width + 1) / 8] | lows [p · width / 8] | codes [p] | 3 bytes

n   documents       p   postings of one list        r   blocks; maxima and directory only if r > 1
"""

from dataclasses import dataclass
from functools import cached_property
from math import log2

import faiss
import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError

__all__ = ["PackedPostings", "pack_postings", "packed_sizes", "width_of"]

LARGEST_CODE = 255
BLOCK_BITS = 7
SPARE_BYTES = 3
"""After a list: four bytes are read at once, from any byte with a row's lowest bits."""
LONGEST_WINDOW = 4
"""Blocks are read side by side, as wide as the longest; if that is so many times the average, the whole list is read."""
READ_ALL_FROM = 3
"""Reading one block costs as much as reading this many of them with the whole list."""
Rows = NDArray[np.uint32]


def width_of(postings: int, documents: int) -> int:
    """The width with the fewest bits: about log2 of the distance between two rows."""
    near = max(int(log2(max(documents / postings, 1.0))), 0)
    widths = range(max(near - 1, 0), near + 2)
    return min(
        widths,
        key=lambda width: postings * width + (documents >> width) + 40 * (documents >> (width + BLOCK_BITS)),
    )


def packed_sizes(
    postings: NDArray[np.int64], widths: NDArray[np.uint8], documents: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of bytes and blocks of lists, int64 [v] each.

    Args:
        postings: int64 [v], p of each list.
        widths: uint8 [v].
        documents: n.
    """
    wide = widths.astype(np.int64)
    blocks = np.maximum(-(-documents >> (wide + BLOCK_BITS)), 1)
    heads = np.where(blocks > 1, 5 * blocks, 0)
    highs = (postings + (documents >> wide) + 8) // 8
    return heads + highs + (postings * wide + 7) // 8 + postings + SPARE_BYTES, blocks


def pack_postings(rows: Rows, codes: NDArray[np.uint8], documents: int, width: int) -> NDArray[np.uint8]:
    """A list as bytes, uint8 [`packed_sizes`].

    Args:
        rows: uint32 [p], ascending, each once, each below n; p >= 1.
        codes: uint8 [p].
        documents: n.
        width: from `width_of`.
    """
    count = len(rows)
    bits = np.zeros(8 * ((count + (documents >> width) + 8) // 8), np.uint8)
    bits[(rows >> np.uint32(width)).astype(np.int64) + np.arange(count)] = 1
    parts = [np.packbits(bits, bitorder="little")]
    if width:
        lows = (rows & np.uint32((1 << width) - 1)).astype(np.int32).reshape(1, -1)
        parts.append(faiss.pack_bitstrings(lows, width)[0])
    blocks = max(-(-documents >> (width + BLOCK_BITS)), 1)
    if blocks > 1:
        firsts = (np.arange(blocks, dtype=np.int64) << (width + BLOCK_BITS)).astype(np.uint32)
        directory = np.searchsorted(rows, firsts).astype("<u4")
        maxima = np.zeros(blocks, np.uint8)
        np.maximum.at(maxima, (rows >> np.uint32(width + BLOCK_BITS)).astype(np.int64), codes)
        parts = [maxima, directory.view(np.uint8), *parts]
    return np.concatenate([*parts, codes, np.zeros(SPARE_BYTES, np.uint8)])


@dataclass(frozen=True, eq=False)
class PackedPostings:
    """A packed list, decoded on demand; a completely decoded one is cached in the object.

    Args:
        data: uint8, from `pack_postings`.
        count: p, >= 1.
        documents: n.
        width: of the list.
    """

    data: NDArray[np.uint8]
    count: int
    documents: int
    width: int

    @cached_property
    def _blocks(self) -> int:
        return max(-(-self.documents >> (self.width + BLOCK_BITS)), 1)

    @cached_property
    def _highs(self) -> NDArray[np.uint8]:
        start = 5 * self._blocks if self._blocks > 1 else 0
        return self.data[start : start + (self.count + (self.documents >> self.width) + 8) // 8]

    @cached_property
    def _lows(self) -> NDArray[np.uint8]:
        stop = len(self.data) - SPARE_BYTES - self.count
        return self.data[stop - (self.count * self.width + 7) // 8 :]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """uint8 [p]."""
        stop = len(self.data) - SPARE_BYTES
        return self.data[stop - self.count : stop]

    @cached_property
    def rows(self) -> Rows:
        """uint32 [p], ascending.

        Raises:
            FormatError: if the list is damaged.
        """
        ones = np.flatnonzero(np.unpackbits(self._highs, bitorder="little").view(np.bool_))
        if len(ones) != self.count:
            raise FormatError(f"a list of {self.count} postings holds {len(ones)}; rebuild the index")
        ones -= np.arange(self.count)
        rows = ones.astype(np.uint32)
        if self.width:
            rows <<= np.uint32(self.width)
            size = (self.count * self.width + 7) // 8
            rows |= faiss.unpack_bitstrings(self._lows[None, :size], self.count, self.width)[0].view(
                np.uint32
            )
        if rows[-1] >= self.documents:
            raise FormatError(f"a list names row {rows[-1]} of {self.documents} documents; rebuild the index")
        return rows

    def block_codes(self, rows: Rows) -> NDArray[np.uint8] | None:
        """The largest code near each row, uint8 [m]; None if the whole list is one block."""
        if self._blocks == 1:
            return None
        codes: NDArray[np.uint8] = self.data[: self._blocks][rows >> np.uint32(self.width + BLOCK_BITS)]
        return codes

    def find(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Which of some rows are in the list, and their places.

        Args:
            rows: uint32 [m], ascending.

        Returns:
            Indexes in `rows`, and for each its place in the list.
        """
        if not len(rows):
            return np.empty(0, np.intp), np.empty(0, np.int64)
        near = self._near(rows) if self.reads_less(rows) else None
        held = self.rows if near is None else near[0]
        if not len(held):
            return np.empty(0, np.intp), np.empty(0, np.int64)
        at = np.minimum(np.searchsorted(held, rows), len(held) - 1)
        here = np.flatnonzero(held[at] == rows)
        return here, at[here] if near is None else near[1][at[here]]

    def reads_less(self, rows: Rows) -> bool:
        """Whether reading the blocks of some rows, uint32 [m] ascending, is less work than reading the whole list."""
        if self._blocks == 1 or "rows" in self.__dict__:
            return False
        return len(self._blocks_of(rows)) * READ_ALL_FROM < self._blocks

    def _blocks_of(self, rows: Rows) -> NDArray[np.int64]:
        blocks = (rows >> np.uint32(self.width + BLOCK_BITS)).astype(np.int64)
        return blocks[np.flatnonzero(np.diff(blocks, prepend=-1))]

    def _near(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]] | None:
        """The postings of the blocks of some rows: rows ascending, and the place of each in the list.

        None if a block is too long for this method.
        """
        blocks = self._blocks_of(rows)
        directory = self.data[self._blocks : 5 * self._blocks].view("<u4")
        starts = directory[blocks].astype(np.int64)
        last = blocks == self._blocks - 1
        stops = np.where(last, self.count, directory[np.minimum(blocks + 1, self._blocks - 1)])
        first_bits = starts + (blocks << BLOCK_BITS)
        sizes = stops - starts + (1 << BLOCK_BITS)
        sizes[last] = self.count + (self.documents >> self.width) + 1 - first_bits[last]
        if (stops < starts).any() or int(sizes.max()) > LONGEST_WINDOW << (BLOCK_BITS + 1):
            return None
        first_bytes, skipped = first_bits >> 3, first_bits & 7
        wanted = first_bytes[:, None] + np.arange((int(sizes.max()) + 14) // 8)
        bits = np.unpackbits(self._highs[np.minimum(wanted, len(self._highs) - 1)], axis=1, bitorder="little")
        columns = np.arange(bits.shape[1])
        bits[(columns < skipped[:, None]) | (columns >= (skipped + sizes)[:, None])] = 0
        owners, columns = np.nonzero(bits)
        counts = stops - starts
        if len(owners) != counts.sum():
            raise FormatError(
                f"a block of a list holds {len(owners)} postings, not {counts.sum()}; rebuild the index"
            )
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(len(owners))
        highs = (first_bytes[owners] << 3) + columns - places
        return ((highs << self.width) | self._lows_at(places)).astype(np.uint32), places

    def _lows_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lowest bits of the rows at some places; `width` is at most 25 if there are several blocks."""
        lows, bits = self._lows, places * self.width
        words = np.ndarray((len(lows) - SPARE_BYTES,), "<u4", lows, strides=(1,))
        found: NDArray[np.int64] = (words[bits >> 3].astype(np.int64) >> (bits & 7)) & ((1 << self.width) - 1)
        return found
