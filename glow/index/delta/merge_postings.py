"""Inverted indexes of several segments made into one, word by word, in memory that does not grow with the postings.

Within a word, postings of the first segment come first, and renumbering keeps their order: each goes to one place that
counting alone tells.

    n   documents       p   postings        v   words
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.delta.merge import SegmentSlice
from glow.index.postings import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    Block,
    ImpactHeader,
    ImpactIndex,
    Vocabulary,
    pack_lists,
)
from glow.storage import new_array

__all__ = ["merge_impacts"]

BLOCK_POSTINGS = 1 << 20


def merge_impacts(segments: Sequence[SegmentSlice], folder: Path, *, learned: bool = False) -> ImpactHeader:
    """Writes `impacts/` of segments that have a lexical index, or `learned/`.

    Args:
        segments: one or more; parameters and layout are those of the first.
        folder: made.
        learned: whether it is their learned impacts, all of one unit.
    """
    folder.mkdir()
    parts, first_row = [], 0
    for kept in segments:
        index = kept.learned if learned else kept.impacts
        assert index is not None  # noqa: S101 - the caller has seen to it
        parts.append(_Part(index, kept, first_row))
        first_row += kept.count
    words = sorted({word for part in parts for word in part.words()}, key=str.encode)
    places = {word: place for place, word in enumerate(words)}
    counts = np.zeros(len(words), np.int64)
    for part in parts:
        part.moved = np.fromiter((places.get(word, -1) for word in part.all_words()), np.int64)
        counts[part.moved[part.counts > 0]] += part.counts[part.counts > 0]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    layout = parts[0].index.header.layout
    header = parts[0].index.header.model_copy(
        update={"documents": first_row, "words": len(words), "postings": int(starts[-1]), "layout": "plain"}
    )
    Vocabulary.save(folder, words)
    np.save(folder / STARTS_FILE, starts)
    np.save(folder / MAXIMA_FILE, np.float32(header.unit) * _write(parts, starts, folder))
    header.save(folder / IMPACTS_HEADER)
    return header if layout == "plain" else pack_lists(folder, header)


class _Part:
    """One segment's postings that stay.

    Attributes:
        counts: int64 [v], postings of each word that stay.
        moved: int64 [v], each word's place in the new vocabulary; -1 where none stays.
    """

    def __init__(self, index: ImpactIndex, kept: SegmentSlice, first_row: int) -> None:
        self.index = index
        self.mask = kept.mask
        self.new_rows = np.cumsum(kept.mask, dtype=np.int64) - 1 + first_row
        self.counts = np.zeros(len(index.vocabulary), np.int64)
        for words, rows, _, _ in self.blocks():
            self.counts += np.bincount(words[self.mask[rows]], minlength=len(self.counts))
        self.moved = np.empty(0, np.int64)

    def all_words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in range(len(self.counts)))

    def words(self) -> Iterator[str]:
        return (self.index.vocabulary.word(row) for row in np.flatnonzero(self.counts).tolist())

    def blocks(self) -> Iterator[Block]:
        """The postings, in order, some at a time."""
        return self.index.blocks(BLOCK_POSTINGS)


def _write(parts: Sequence[_Part], starts: NDArray[np.int64], folder: Path) -> NDArray[np.float32]:
    """Puts every posting in its place; returns each word's largest impact or code, float32 [v]."""
    is_learned = parts[0].index.header.kind == "learned"
    all_rows = new_array(folder / ROWS_FILE, np.uint32, int(starts[-1]))
    kind, name = (np.uint8, CODES_FILE) if is_learned else (np.float32, VALUES_FILE)
    all_impacts = new_array(folder / name, kind, int(starts[-1]))
    all_causes = new_array(folder / CAUSES_FILE, np.uint8, int(starts[-1])) if is_learned else None
    heads = starts[:-1].copy()  # where the next posting of each word goes
    maxima = np.zeros(len(heads), np.float32)
    for part in parts:
        for words, rows, impacts, causes in part.blocks():
            stay = part.mask[rows]
            moved = part.moved[words[stay]]
            there, first, counts = np.unique(moved, return_index=True, return_counts=True)
            # Words of a block ascend, in the old vocabulary and so in the new one.
            places = np.repeat(heads[there] - first, counts) + np.arange(len(moved))
            all_rows[places] = part.new_rows[rows[stay]]
            all_impacts[places] = impacts[stay]
            if all_causes is not None and causes is not None:
                all_causes[places] = causes[stay]
            np.maximum.at(maxima, moved, impacts[stay])
            heads[there] += counts
    return maxima
