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
    def largest(self) -> float: ...  # noqa: D102 - see the class
    @property
    def analyzer(self) -> Analyzer: ...  # noqa: D102
    @property
    def is_remote(self) -> bool: ...  # noqa: D102
    def __len__(self) -> int: ...
    def search(  # noqa: D102
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking: ...
    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...  # noqa: D102
    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...  # noqa: D102
    def holds(self, word: str) -> bool: ...  # noqa: D102
    def bound(self, words: Sequence[str]) -> float: ...  # noqa: D102


class StoredImpacts(ImpactsView, Protocol):
    """The lexical index of one segment, for joining; `ImpactIndex` describes each method."""

    def largest_of(self, alive: RowMask | None) -> float: ...  # noqa: D102 - see the class


class SegmentImpacts(StoredImpacts, Protocol):
    """The same with what merging needs; `ImpactIndex` describes each method."""

    @property
    def header(self) -> ImpactHeader: ...  # noqa: D102 - see the class
    @property
    def vocabulary(self) -> Vocabulary: ...  # noqa: D102
    def blocks(self, most: int) -> Iterator[Block]: ...  # noqa: D102
    def word_counts(self) -> Iterator[tuple[str, int]]: ...  # noqa: D102
