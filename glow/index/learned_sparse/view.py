"""The interface of learned impacts for searches, over one or two segments (`glow.index.segment`)."""

from collections.abc import Sequence
from typing import Protocol

from glow.index.learned_sparse.impacts import Expansion
from glow.index.postings import ImpactsView

__all__ = ["LearnedView"]


class LearnedView(ImpactsView, Protocol):
    """Learned impacts with BM25, for searches; `LearnedImpacts` describes each method."""

    @property
    def weight(self) -> float: ...  # noqa: D102 - see the class
    def with_weight(self, weight: float) -> "LearnedView": ...  # noqa: D102
    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]: ...  # noqa: D102
