"""Segments made into one: what is kept of each, one after another, without tokenising or encoding anything again.

A new delta is what is left of the delta before and what is new; a compacted version is what is left of the base, and the
delta. Impacts stay as they are, so all segments must have been made with one term table and one average length.

n   documents       p   postings or passages        D   dimensions
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.passages import ARRAYS, PASSAGES_FOLDER, PASSAGES_HEADER, PassageMap
from glow.index.postings import ImpactIndex
from glow.index.spelling import SpellingTable, merge_tables
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.token_embeddings import STATES_FOLDER, TermStates, merge_states
from glow.index.vectors import VectorReader
from glow.records import Document

__all__ = [
    "SegmentSlice",
    "merge_documents",
    "merge_passages",
    "merge_spelling",
    "merge_term_states",
    "slice_documents",
]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class SegmentSlice:
    """A segment, and which of its documents stay.

    Attributes:
        documents: n documents.
        vectors: reads vectors by row, of passages where there are any.
        impacts, learned, passages, spelling, states: as in the segment; None where it has none.
        mask: bool [n], the documents that stay.
    """

    documents: DocumentStore
    vectors: VectorReader
    impacts: ImpactIndex | None
    passages: PassageMap | None
    spelling: SpellingTable | None
    states: TermStates | None
    learned: ImpactIndex | None
    mask: Mask

    @property
    def count(self) -> int:
        """Documents that stay."""
        return int(np.count_nonzero(self.mask))

    @property
    def vector_rows(self) -> NDArray[np.int64]:
        """Rows of the vectors that stay, int64, ascending."""
        if self.passages is None:
            return np.flatnonzero(self.mask)
        return np.flatnonzero(np.repeat(self.mask, np.diff(self.passages.first)))


def slice_documents(segments: Sequence[SegmentSlice]) -> Iterator[Document]:
    """Yields what stays of every segment, in the order of the new rows."""
    for kept in segments:
        for stays, document in zip(kept.mask.tolist(), kept.documents.scan(), strict=True):
            if stays:
                yield document


def merge_documents(segments: Sequence[SegmentSlice], path: Path) -> None:
    """Writes a document store; path must not exist."""
    with DocumentWriter(path) as writer:
        for document in slice_documents(segments):
            writer.add(document)


def merge_passages(segments: Sequence[SegmentSlice], folder: Path) -> PassageMap:
    """Writes `passages/` of segments that have passages, cut by the same rules, and opens it.

    How many documents lost text to the limit is not known of each, so the new header's figure is the most it can be.

    Args:
        segments: one or more.
        folder: of the version or segment in the making.
    """
    maps = [kept.passages for kept in segments if kept.passages is not None]
    sizes = [np.diff(passages.first)[kept.mask] for passages, kept in zip(maps, segments, strict=True)]
    rows = [kept.vector_rows for kept in segments]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes), dtype=np.int64)])
    documents = len(first) - 1
    arrays = {
        "documents": np.repeat(np.arange(documents), np.diff(first)),
        "starts": np.concatenate([passages.starts[row] for passages, row in zip(maps, rows, strict=True)]),
        "ends": np.concatenate([passages.ends[row] for passages, row in zip(maps, rows, strict=True)]),
        "first": first,
    }
    target = folder / PASSAGES_FOLDER
    target.mkdir()
    for name in ARRAYS:
        np.save(target / f"{name}.npy", arrays[name].astype(np.uint32), allow_pickle=False)
    header = maps[0].header.model_copy(
        update={
            "documents": documents,
            "passages": int(first[-1]),
            "left_out": min(documents, sum(passages.header.left_out for passages in maps)),
        }
    )
    header.save(target / PASSAGES_HEADER)
    return PassageMap.open(target)


def merge_spelling(segments: Sequence[SegmentSlice], folder: Path) -> None:
    """Writes `spelling/` of segments whose impacts are merged in the folder already.

    Args:
        segments: one or more.
        folder: of the version or delta in the making.
    """
    merge_tables(folder, (kept.spelling for kept in segments if kept.spelling is not None))


def merge_term_states(segments: Sequence[SegmentSlice], folder: Path) -> None:
    """Writes `states/` of segments that have term representations; nothing where they have none.

    Args:
        segments: one or more with the same parts.
        folder: of the version or delta in the making.

    Raises:
        MismatchError: if they were made by different re-rankers.
    """
    parts = [(kept.states, kept.vector_rows) for kept in segments if kept.states is not None]
    if parts:
        merge_states(folder / STATES_FOLDER, parts)
