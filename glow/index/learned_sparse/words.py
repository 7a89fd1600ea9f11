"""The vocabulary of learned impacts, with each word's direction, gain and pruning weight; `learned-words/` of an index.

W   words       K   dimensions of a direction
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.postings import Vocabulary
from glow.runtime import Encoder, LearnedHead
from glow.storage import map_array, map_matrix
from glow.text import Preprocessor, TermTable, is_lexical

__all__ = ["LEARNED_WORDS_FILES", "LEARNED_WORDS_FOLDER", "WordSide", "choose_words"]

LEARNED_WORDS_FOLDER = "learned-words"
_VECTORS, _GAINS, _WEIGHTS = "directions.npy", "gains.npy", "weights.npy"
LEARNED_WORDS_FILES = ("words.bin", "offsets.npy", _VECTORS, _GAINS, _WEIGHTS)
WEIGHT_POWER = 0.25
"""Exponent of a word's frequency in queries; .25 to .5 measured alike (docs/results/models.md)."""
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class WordSide:
    """The vocabulary, in the order of the words' UTF-8 bytes.

    Attributes:
        words: W.
        directions: float32 [W, K], L2-normalized.
        gains: float32 [W], > 0.
        weights: float32 [W], > 0: factor of an impact when a document's are pruned; greater for words that are frequent in queries.
    """

    words: tuple[str, ...]
    directions: NDArray[np.float32]
    gains: NDArray[np.float32]
    weights: NDArray[np.float32]

    @classmethod
    def make(
        cls, shares: Mapping[str, float], head: LearnedHead, preprocessor: Preprocessor, encoder: Encoder
    ) -> "WordSide":
        """Computes the head's outputs for words.

        Args:
            shares: words and frequencies from `choose_words`.
            head: of the model.
            preprocessor: with the index's own term statistics.
            encoder: the model's query encoder.
        """
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
        """Reads a directory with verified checksums.

        Raises:
            FormatError: if a file is missing or inconsistent with the others; the message names it.
        """
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
    corpus: TermTable, head: LearnedHead, limit: int, asked: Mapping[str, int] | None = None
) -> dict[str, float]:
    """The words that are most likely in queries, at most `limit`, each with its estimated frequency.

    The estimate is the mean of the known frequencies: in the head's training queries, in the index's own documents, and in
    the queries whose users clicked those documents.

    Args:
        corpus: the documents' word statistics.
        head: of the model.
        limit: maximum number of words.
        asked: count of each word in the documents' clicked queries; None or empty: there are none.
    """
    counted = {word: df for word, df in corpus.items() if is_lexical(word)}
    learned = dict(zip(head.words, head.priors.tolist(), strict=True))
    shares: dict[str, float] = {}
    known = [counts for counts in (counted, learned, dict(asked or {})) if counts]
    for counts in known:
        total = sum(counts.values()) * len(known)
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    chosen = sorted(shares.items(), key=lambda each: (-each[1], each[0].encode()))[:limit]
    return dict(chosen)
