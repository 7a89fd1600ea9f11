"""What searches ask of learned impacts, whether one segment holds them or two (`glow.index.segment`)."""

from collections.abc import Sequence
from typing import Protocol

from glow.index.learned_sparse.impacts import Expansion
from glow.index.postings import ImpactsView

__all__ = ["LearnedView"]


class LearnedView(ImpactsView, Protocol):
    """What searches ask of learned impacts with BM25's; `LearnedImpacts` describes each of it."""

    @property
    def weight(self) -> float: ...  # noqa: D102 - see the class
    def with_weight(self, weight: float) -> "LearnedView": ...  # noqa: D102
    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]: ...  # noqa: D102
