"""Learned impacts of a base and its delta, with BM25's, as one."""

from collections.abc import Sequence
from dataclasses import replace

from glow.index.learned_sparse.impacts import Expansion, LearnedImpacts
from glow.index.postings import JoinedImpacts
from glow.index.segments import BaseAndDelta

__all__ = ["JoinedLearned"]


class JoinedLearned(JoinedImpacts[LearnedImpacts]):
    """Learned impacts of both, with BM25's.

    Args:
        both: the impacts, under one weight.
    """

    def __init__(self, both: BaseAndDelta[LearnedImpacts]) -> None:
        super().__init__(both)
        self.weight = both.base.weight

    def with_weight(self, weight: float) -> "JoinedLearned":
        """The same impacts under another weight."""
        both = self._both
        return JoinedLearned(
            replace(both, base=both.base.with_weight(weight), delta=both.delta.with_weight(weight))
        )

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each word of a query adds to one document's score, by where it comes from."""
        reader, here = self._both.owner(row)
        return reader.expansions(words, here)
