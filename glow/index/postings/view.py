"""The interface of a lexical index for searches, over one or two segments (`glow.index.segment`)."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.format import ImpactHeader
from glow.index.postings.lists import Block
from glow.index.postings.vocabulary import Vocabulary
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.text import Analyzer

__all__ = ["ImpactsView", "SegmentImpacts", "StoredImpacts"]


class ImpactsView(Protocol):
    """A lexical index for searches; `ImpactIndex` describes each method."""

    @property
    def largest(self) -> float: ...
    @property
    def analyzer(self) -> Analyzer: ...
    @property
    def is_remote(self) -> bool: ...
    def __len__(self) -> int: ...
    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking: ...
    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def holds(self, word: str) -> bool: ...
    def bound(self, words: Sequence[str]) -> float: ...


class StoredImpacts(ImpactsView, Protocol):
    """The lexical index of one segment, for joining; `ImpactIndex` describes each method."""

    def largest_of(self, alive: RowMask | None) -> float: ...


class SegmentImpacts(StoredImpacts, Protocol):
    """The same with what merging needs; `ImpactIndex` describes each method."""

    @property
    def header(self) -> ImpactHeader: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    def blocks(self, most: int) -> Iterator[Block]: ...
    def word_counts(self) -> Iterator[tuple[str, int]]: ...
