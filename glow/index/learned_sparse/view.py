"""The interface of learned impacts for searches, over one or two segments (`glow.index.segment`)."""

from collections.abc import Sequence
from typing import Protocol

from glow.index.learned_sparse.impacts import Expansion
from glow.index.postings import ImpactsView, SegmentImpacts, StoredImpacts

__all__ = ["LearnedView", "StoredLearned"]


class LearnedView(ImpactsView, Protocol):
    """Learned impacts with BM25, for searches; `LearnedImpacts` describes each method."""

    @property
    def weight(self) -> float: ...
    def with_weight(self, weight: float) -> "LearnedView": ...
    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]: ...


class StoredLearned(LearnedView, StoredImpacts, Protocol):
    """Learned impacts of one segment, for joining and merging; `LearnedImpacts` describes each method."""

    @property
    def learned(self) -> SegmentImpacts: ...
    def with_weight(self, weight: float) -> "StoredLearned": ...
