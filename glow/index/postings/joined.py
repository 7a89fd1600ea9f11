"""The lexical indexes of a base and its delta as one."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index.postings.view import StoredImpacts
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.index.segments import BaseAndDelta

__all__ = ["JoinedImpacts"]

W = TypeVar("W", bound=StoredImpacts)


class JoinedImpacts(Generic[W]):
    """Impacts of both. The delta's use the base's idf and average length, so scores are comparable.

    Args:
        both: the lexical indexes, or those with learned impacts.
    """

    def __init__(self, both: BaseAndDelta[W]) -> None:
        self._both = both
        # Without deleted documents, as in a rebuild.
        self.largest = max(both.base.largest_of(both.segments.alive), both.delta.largest)
        self.analyzer = both.base.analyzer
        self.is_remote = both.base.is_remote

    def __len__(self) -> int:
        return len(self._both.segments)

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k documents with the highest scores in both; arguments as for `ImpactIndex`."""

        def find(reader: W, rows: RowMask | None, ranks: NDArray[np.uint32] | None) -> Ranking:
            return reader.search(words, k, rows, ranks)

        return self._both.search(find, k, allowed, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given documents, bit for bit those of `search`."""
        return self._both.gather(rows, lambda reader, here: reader.score(words, here))

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """What each of some words adds to the scores of given documents, float32 [m, words]."""
        return self._both.gather(rows, lambda reader, here: reader.by_word(words, here))

    def holds(self, word: str) -> bool:
        """Whether any document has a word, or another with the same term; deleted documents count until the next build."""
        return self._both.base.holds(word) or self._both.delta.holds(word)

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return max(self._both.base.bound(words), self._both.delta.bound(words))
