"""Learned impacts of a base and its delta, with those of BM25, as one index."""

from collections.abc import Sequence
from dataclasses import replace

from glow.index.learned_sparse.impacts import Expansion
from glow.index.learned_sparse.view import StoredLearned
from glow.index.postings import JoinedImpacts
from glow.index.segments import BaseAndDelta

__all__ = ["JoinedLearned"]


class JoinedLearned(JoinedImpacts[StoredLearned]):
    """Learned impacts of both, with those of BM25.

    Args:
        both: the impacts, with one weight.
    """

    def __init__(self, both: BaseAndDelta[StoredLearned]) -> None:
        super().__init__(both)
        self.weight = both.base.weight

    def with_weight(self, weight: float) -> "JoinedLearned":
        """The same impacts with another weight."""
        both = self._both
        return JoinedLearned(
            replace(both, base=both.base.with_weight(weight), delta=both.delta.with_weight(weight))
        )

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each query word adds to one document's score, by source."""
        reader, here = self._both.owner(row)
        return reader.expansions(words, here)
