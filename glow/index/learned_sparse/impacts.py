"""Learned impacts of documents: computed from directions, and searched together with those of BM25.

L   tokens      W   words       K   dimensions of a direction       b   most words of a document
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.postings import (
    ImpactIndex,
    ImpactsView,
    PostingList,
    SegmentedImpacts,
    SegmentImpacts,
    StoredImpacts,
    Vocabulary,
)
from glow.runtime import Encoder, LearnedHead
from glow.storage import map_array, map_matrix
from glow.text import Preprocessor, TermTable, is_lexical

LEARNED_WORDS_FOLDER = "learned-words"
_VECTORS, _GAINS, _WEIGHTS = "directions.npy", "gains.npy", "weights.npy"
LEARNED_WORDS_FILES = ("words.bin", "offsets.npy", _VECTORS, _GAINS, _WEIGHTS)
WEIGHT_POWER = 0.25
"""Exponent of a word's frequency in queries; .25 to .5 measured alike (docs/results/models.md)."""
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class WordSide:
    """The vocabulary, in the order of the words' UTF-8 bytes."""

    words: tuple[str, ...]  # W
    directions: NDArray[np.float32]  # float32 [W, K], L2-normalized
    gains: NDArray[np.float32]  # float32 [W], > 0
    # float32 [W], > 0: factor of an impact when a document's are pruned; greater for words that are frequent
    # in queries
    weights: NDArray[np.float32]

    @classmethod
    def make(
        cls, shares: Mapping[str, float], head: LearnedHead, preprocessor: Preprocessor, encoder: Encoder
    ) -> "WordSide":
        """Computes the head's outputs for words."""
        words = sorted(shares, key=str.encode)
        directions, gains = head.directions(words, preprocessor, encoder)
        weights = np.array([shares[word] + _LEAST for word in words], np.float64) ** WEIGHT_POWER
        return cls(tuple(words), directions, gains, weights.astype(np.float32))

    def save(self, folder: Path) -> None:
        """Writes the directory, which is created."""
        folder.mkdir(parents=True)
        Vocabulary.save(folder, self.words)
        for name, array in self._arrays():
            np.save(folder / name, array, allow_pickle=False)

    def _arrays(self) -> list[tuple[str, NDArray[np.float32]]]:
        return [(_VECTORS, self.directions), (_GAINS, self.gains), (_WEIGHTS, self.weights)]

    @classmethod
    def load(cls, folder: Path) -> "WordSide":
        """Reads a directory with verified checksums."""
        vocabulary = Vocabulary.load(folder)
        count = len(vocabulary)
        directions = map_matrix(folder / _VECTORS, np.float32, count)
        gains, weights = (map_array(folder / name, np.float32, count) for name in (_GAINS, _WEIGHTS))
        for name, array in ((_VECTORS, directions), (_GAINS, gains), (_WEIGHTS, weights)):
            if not np.isfinite(array).all() or (name != _VECTORS and (array <= 0).any()):
                raise FormatError(
                    f"{folder.name}/{name} holds a number that is not finite, or not above 0; rebuild the index"
                )
        return cls(tuple(vocabulary.word(row) for row in range(count)), directions, gains, weights)


def choose_words(
    corpus: TermTable,
    head: LearnedHead,
    limit: int,
    # Count of each word in the documents' clicked queries; None or empty: there are none
    queries: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """The words that are most likely in queries, at most `limit`, each with its estimated frequency.

    The estimate is the mean of the known frequencies: in the head's training queries, in the index's own documents, and in
    the queries whose users clicked those documents.
    """
    counted = {word: df for word, df in corpus.items() if is_lexical(word)}
    learned = dict(zip(head.words, head.priors.tolist(), strict=True))
    shares: dict[str, float] = {}
    known = [counts for counts in (counted, learned, dict(queries or {})) if counts]
    for counts in known:
        total = sum(counts.values()) * len(known)
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    chosen = sorted(shares.items(), key=lambda each: (-each[1], each[0].encode()))[:limit]
    return dict(chosen)


LARGEST_CODE, NO_CAUSE = 255, 255


class LearnedWords(NamedTuple):
    """A document's most important words, in the order of the vocabulary."""

    words: NDArray[np.uint32]  # uint32 [b'], b' <= b, positions in `WordSide.words`
    codes: NDArray[np.uint8]  # uint8 [b'], > 0; an impact is the code times the unit
    # uint8 [b'], position of the document's word that each comes from; 255 if it is greater, or in a passage
    causes: NDArray[np.uint8]


class WordScorer:
    """Scores every word for a document and keeps the most important ones; safe to use from many threads."""

    def __init__(
        self,
        side: WordSide,  # the vocabulary
        cut: float,  # cosine below which a token contributes nothing to a word
        budget: int,  # b
        unit: float | None = None,  # impact of code 1; None: code 255 is the largest possible impact
    ) -> None:
        self._side, self._cut, self.budget = side, cut, budget
        self._transposed = np.ascontiguousarray(side.directions.T)
        largest = float(side.gains.max(initial=0.0)) * (1.0 - cut)
        self.unit = unit or max(largest, 1e-6) / LARGEST_CODE

    def score(
        self,
        tokens: NDArray[np.float32],  # float32 [L, K], L2-normalized
        places: NDArray[np.int64],  # int64 [L], position of each token's word in the document
    ) -> LearnedWords:
        """The b most important words of a document."""
        if not len(tokens) or not len(self._side.words):
            return LearnedWords(np.empty(0, np.uint32), np.empty(0, np.uint8), np.empty(0, np.uint8))
        nearest = (tokens @ self._transposed).max(0)
        codes = np.rint(self._side.gains * np.maximum(nearest - self._cut, 0.0) / self.unit)
        worth = codes * self._side.weights
        words = np.flatnonzero(worth)
        if len(words) > self.budget:
            # Ties go to the first word, so that the result is deterministic.
            words = np.sort(words[np.argsort(-worth[words], kind="stable")[: self.budget]])
        chosen = (tokens @ self._side.directions[words].T).argmax(0)
        return LearnedWords(
            words.astype(np.uint32),
            np.minimum(codes[words], LARGEST_CODE).astype(np.uint8),
            np.minimum(places[chosen], NO_CAUSE).astype(np.uint8),
        )

    def best_of(self, parts: Sequence[LearnedWords]) -> LearnedWords:
        """Combines the words of a document's passages, which were scored separately: each word's largest impact, at most b words."""
        words = np.concatenate([part.words for part in parts])
        codes = np.concatenate([part.codes for part in parts])
        first = np.lexsort((-codes.astype(np.int64), words))
        words, places = np.unique(words[first], return_index=True)
        rows = first[places]
        worth = codes[rows] * self._side.weights[words]
        if len(rows) > self.budget:
            best = np.sort(np.argsort(-worth, kind="stable")[: self.budget])
            words, rows = words[best], rows[best]
        # A cause is a position in its passage, and a search may show another passage.
        return LearnedWords(words.astype(np.uint32), codes[rows], np.full(len(rows), NO_CAUSE, np.uint8))


class Expansion(NamedTuple):
    """What a query word adds to a document's score, by source."""

    bm25: float  # because the document has the word, or another with the same term
    learned: float  # the learned impact
    cause: int | None  # position of the document's word that `learned` comes from; None if it is 0


class LearnedImpacts(ImpactIndex):
    """BM25 and learned impacts of one segment as one inverted index; maxima and terms are those of BM25."""

    def __init__(self, bm25: ImpactIndex, learned: ImpactIndex) -> None:
        super().__init__(bm25.header, bm25.vocabulary, bm25.postings)
        self._bm25, self.learned = bm25, learned

    def lists(self, words: Sequence[str]) -> list[PostingList]:
        """The postings of BM25's terms, then those of learned words, which are used as they are."""
        return self._bm25.lists(words) + self.learned.lists(words)

    def bound(self, words: Sequence[str]) -> float:
        """Upper bound of all documents' scores."""
        return self._bm25.bound(words) + self.learned.bound(words)

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each query word adds, by source; words that add nothing are left out."""
        at, by_word = np.array([row], np.int64), {}
        counts = Counter(words)
        added = (each.by_word(list(counts), at)[0].tolist() for each in (self._bm25, self.learned))
        for (word, count), own, related in zip(counts.items(), *added, strict=True):
            bm25, learned = count * own, count * related
            if bm25 or learned:
                cause = self.learned.cause(word, row) if learned else None
                by_word[word] = Expansion(bm25, learned, None if cause == NO_CAUSE else cause)
        return by_word


class LearnedView(ImpactsView, Protocol):
    """Learned impacts with BM25, for searches; `LearnedImpacts` describes each method."""

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]: ...


class StoredLearned(LearnedView, StoredImpacts, Protocol):
    """Learned impacts of one segment, for joining and merging; `LearnedImpacts` describes each method."""

    @property
    def learned(self) -> SegmentImpacts: ...


class SegmentedLearned(SegmentedImpacts[StoredLearned]):
    """Learned impacts of all segments, with those of BM25."""

    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]:
        """What each query word adds to one document's score, by source."""
        reader, here = self._segments.owner(row)
        return reader.expansions(words, here)
