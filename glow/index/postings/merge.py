"""Merges the inverted indexes of several segments, word by word, in memory that does not grow with the postings.

Within a word, postings of the first segment come first, and renumbering keeps their order: the place of each follows
from the counts.

    n   documents       p   postings        v   words
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
)
from glow.index.postings.lists import Block
from glow.index.postings.view import SegmentImpacts
from glow.index.postings.vocabulary import Vocabulary
from glow.storage import new_array

__all__ = ["merge_impacts"]

BLOCK_POSTINGS = 1 << 20


def merge_impacts(kept: Sequence[tuple[SegmentImpacts, NDArray[np.bool_]]], folder: Path) -> ImpactHeader:
    """Writes one inverted index of the live documents of several: BM25's, or learned impacts of one unit.

    Args:
        kept: at least one, with its live documents, bool [n]. Parameters are those of the first.
        folder: to create.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    folder.mkdir()
    sources, first_row = [], 0
    for index, live in kept:
        sources.append(_Source(index, live, first_row))
        first_row += int(np.count_nonzero(live))
    words = sorted({word for source in sources for word in source.words()}, key=str.encode)
    places = {word: place for place, word in enumerate(words)}
    counts = np.zeros(len(words), np.int64)
    for source in sources:
        source.moved = np.fromiter((places.get(word, -1) for word in source.all_words()), np.int64)
        counts[source.moved[source.counts > 0]] += source.counts[source.counts > 0]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    header = sources[0].index.header.model_copy(
        update={"documents": first_row, "words": len(words), "postings": int(starts[-1])}
    )
    Vocabulary.save(folder, words)
    np.save(folder / STARTS_FILE, starts)
    np.save(folder / MAXIMA_FILE, np.float32(header.unit) * _write(sources, starts, folder))
    header.save(folder / IMPACTS_HEADER)
    return header


class _Source:
    """The live postings of one segment.

    Attributes:
        counts: int64 [v], number of live postings of each word.
        moved: int64 [v], each word's position in the new vocabulary; -1 if it has no live postings.
    """

    def __init__(self, index: SegmentImpacts, live: NDArray[np.bool_], first_row: int) -> None:
        self.index = index
        self.mask = live
        self.new_rows = np.cumsum(live, dtype=np.int64) - 1 + first_row
        self.counts = np.zeros(len(index.vocabulary), np.int64)
        for words, rows, _, _ in self.blocks():
            self.counts += np.bincount(words[self.mask[rows]], minlength=len(self.counts))
        self.moved = np.empty(0, np.int64)

    def all_words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in range(len(self.counts)))

    def words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in np.flatnonzero(self.counts).tolist())

    def blocks(self) -> Iterator[Block]:
        """The postings, in order, in blocks."""
        return self.index.blocks(BLOCK_POSTINGS)


def _write(sources: Sequence[_Source], starts: NDArray[np.int64], folder: Path) -> NDArray[np.float32]:
    """Moves every posting to its place; returns each word's largest impact or code, float32 [v]."""
    is_learned = sources[0].index.header.kind == "learned"
    all_rows = new_array(folder / ROWS_FILE, np.uint32, int(starts[-1]))
    kind, name = (np.uint8, CODES_FILE) if is_learned else (np.float32, VALUES_FILE)
    all_impacts = new_array(folder / name, kind, int(starts[-1]))
    all_causes = new_array(folder / CAUSES_FILE, np.uint8, int(starts[-1])) if is_learned else None
    heads = starts[:-1].copy()  # place of the next posting of each word
    maxima = np.zeros(len(heads), np.float32)
    for source in sources:
        for words, rows, impacts, causes in source.blocks():
            stay = source.mask[rows]
            moved = source.moved[words[stay]]
            there, first, counts = np.unique(moved, return_index=True, return_counts=True)
            # Words of a block ascend in the old vocabulary, and so in the new one.
            places = np.repeat(heads[there] - first, counts) + np.arange(len(moved))
            all_rows[places] = source.new_rows[rows[stay]]
            all_impacts[places] = impacts[stay]
            if all_causes is not None and causes is not None:
                all_causes[places] = causes[stay]
            np.maximum.at(maxima, moved, impacts[stay])
            heads[there] += counts
    return maxima
