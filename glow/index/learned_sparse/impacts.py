"""Learned impacts of documents: made from directions, and searched together with BM25's.

L   tokens      W   words       K   dimensions of a direction       b   budget of words a document
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index.learned_sparse.words import WordSide
from glow.index.postings import ImpactIndex, PostingList, ScoreAccumulator, look_up
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.text import Analyzer

__all__ = ["Expansion", "LearnedImpacts", "LearnedWords", "WordScorer"]

LARGEST_CODE, NO_CAUSE = 255, 255


class LearnedWords(NamedTuple):
    """A document's words that were kept, in the order of the vocabulary.

    Attributes:
        words: uint32 [b'], b' <= b, places in `WordSide.words`.
        codes: uint8 [b'], > 0; times the unit an impact.
        causes: uint8 [b'], the place of the document's word that each comes from; 255 where it lies farther back, or in a passage.
    """

    words: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    causes: NDArray[np.uint8]


class WordScorer:
    """Scores every word against a document and keeps the ones that matter most; safe to use from many threads.

    Args:
        side: the words.
        cut: cosine below which a token says nothing of a word.
        budget: b.
        unit: impact of code 1; None: the largest that any word can have is code 255.

    Attributes:
        unit: as given or worked out.
    """

    def __init__(self, side: WordSide, cut: float, budget: int, unit: float | None = None) -> None:
        self._side, self._cut, self.budget = side, cut, budget
        self._transposed = np.ascontiguousarray(side.directions.T)
        largest = float(side.gains.max(initial=0.0)) * (1.0 - cut)
        self.unit = unit or max(largest, 1e-6) / LARGEST_CODE

    def score(self, tokens: NDArray[np.float32], places: NDArray[np.int64]) -> LearnedWords:
        """The b words of a document that matter most.

        Args:
            tokens: float32 [L, K], L2-normalised.
            places: int64 [L], the place of each token's word in the document.
        """
        if not len(tokens) or not len(self._side.words):
            return LearnedWords(np.empty(0, np.uint32), np.empty(0, np.uint8), np.empty(0, np.uint8))
        nearest = (tokens @ self._transposed).max(0)
        codes = np.rint(self._side.gains * np.maximum(nearest - self._cut, 0.0) / self.unit)
        worth = codes * self._side.weights
        kept = np.flatnonzero(worth)
        if len(kept) > self.budget:
            # Ties go to the word that comes first, so that the same document always keeps the same.
            kept = np.sort(kept[np.argsort(-worth[kept], kind="stable")[: self.budget]])
        chosen = (tokens @ self._side.directions[kept].T).argmax(0)
        return LearnedWords(
            kept.astype(np.uint32),
            np.minimum(codes[kept], LARGEST_CODE).astype(np.uint8),
            np.minimum(places[chosen], NO_CAUSE).astype(np.uint8),
        )

    def best_of(self, parts: Sequence[LearnedWords]) -> LearnedWords:
        """The words of a document whose passages were scored each for itself: of each word its largest impact, b in all."""
        words = np.concatenate([part.words for part in parts])
        codes = np.concatenate([part.codes for part in parts])
        first = np.lexsort((-codes.astype(np.int64), words))
        words, places = np.unique(words[first], return_index=True)
        rows = first[places]
        worth = codes[rows] * self._side.weights[words]
        if len(rows) > self.budget:
            kept = np.sort(np.argsort(-worth, kind="stable")[: self.budget])
            words, rows = words[kept], rows[kept]
        # A cause is a place in its passage, and a search may show another one.
        return LearnedWords(words.astype(np.uint32), codes[rows], np.full(len(rows), NO_CAUSE, np.uint8))


class Expansion(NamedTuple):
    """What a word of a query adds to a document's score.

    Attributes:
        bm25: because the document has the word, or another of its term.
        learned: because of what the document says.
        cause: the place of the document's word that `learned` comes from; None where it is 0.
    """

    bm25: float
    learned: float
    cause: int | None


class LearnedImpacts:
    """BM25 and learned impacts of one segment as one inverted index; arguments and results as for `ImpactIndex`.

    Args:
        bm25: of the documents' own words, or their terms.
        learned: of words, also those that a document does not hold.
        weight: times a learned impact, >= 0; 0 leaves BM25 alone.
    """

    def __init__(self, bm25: ImpactIndex, learned: ImpactIndex, weight: float = 1.0) -> None:
        self._bm25, self._learned, self.weight = bm25, learned, weight
        self._sums = ScoreAccumulator(len(bm25))

    def with_weight(self, weight: float) -> "LearnedImpacts":
        """The same impacts under another weight."""
        return LearnedImpacts(self._bm25, self._learned, weight)

    @property
    def learned(self) -> ImpactIndex:
        """The learned impacts alone."""
        return self._learned

    @property
    def analyzer(self) -> Analyzer:
        """Of BM25; learned impacts are of words as they are."""
        return self._bm25.analyzer

    @property
    def largest(self) -> float:
        """Of BM25: the scale on which words count beside vectors."""
        return self._bm25.largest

    def largest_of(self, alive: RowMask | None) -> float:
        """As `ImpactIndex.largest_of`, of BM25."""
        return self._bm25.largest_of(alive)

    def __len__(self) -> int:
        return len(self._bm25)

    def search(
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """The k documents with the highest scores."""
        return self._sums.search(self._lists(words), k, allowed, order)

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of some documents, to the bit those of `search`."""
        return look_up(self._lists(words), rows)

    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]:
        """What each word of a query adds to one document's score."""
        at = np.array([row], np.int64)
        return {word: float(self.score([word] * count, at)[0]) for word, count in Counter(words).items()}

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each word of a query adds, by where it comes from; of those that add anything."""
        at, found = np.array([row], np.int64), {}
        for word, count in Counter(words).items():
            bm25 = float(self._bm25.score([word] * count, at)[0])
            learned = self.weight * float(self._learned.score([word] * count, at)[0])
            if bm25 or learned:
                cause = self._learned.cause(word, row) if learned else None
                found[word] = Expansion(bm25, learned, None if cause == NO_CAUSE else cause)
        return found

    def holds(self, word: str) -> bool:
        """Whether any document holds a word itself, or another of its term."""
        return self._bm25.holds(word)

    def bound(self, words: Sequence[str]) -> float:
        """What no document's score exceeds."""
        return self._bm25.bound(words) + self.weight * self._learned.bound(words)

    def _lists(self, words: Sequence[str]) -> list[PostingList]:
        lists = self._bm25.lists(words)
        return (
            lists + [each.times(self.weight) for each in self._learned.lists(words)] if self.weight else lists
        )
