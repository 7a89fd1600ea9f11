"""The words that learned impacts are made for, with direction, gain and weight in pruning of each; `learned-words/` of an index.

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
"""Of a word's share among the words of queries; alike from .25 to .5 where it was measured (docs/results/models.md)."""
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class WordSide:
    """Words, in the order of their UTF-8 bytes.

    Attributes:
        words: W.
        directions: float32 [W, K], L2-normalised.
        gains: float32 [W], > 0.
        weights: float32 [W], > 0: what an impact counts when a document's are pruned; higher where queries hold the word more often.
    """

    words: tuple[str, ...]
    directions: NDArray[np.float32]
    gains: NDArray[np.float32]
    weights: NDArray[np.float32]

    @classmethod
    def make(
        cls, shares: Mapping[str, float], head: LearnedHead, preprocessor: Preprocessor, encoder: Encoder
    ) -> "WordSide":
        """Works out what the head makes of words.

        Args:
            shares: words as `choose_words` gives them.
            head: of the model.
            preprocessor: with the index's own term table.
            encoder: the model's query tower.
        """
        words = sorted(shares, key=str.encode)
        directions, gains = head.directions(words, preprocessor, encoder)
        weights = np.array([shares[word] + _LEAST for word in words], np.float64) ** WEIGHT_POWER
        return cls(tuple(words), directions, gains, weights.astype(np.float32))

    def save(self, folder: Path) -> None:
        """Writes the folder, which is made."""
        folder.mkdir(parents=True)
        Vocabulary.save(folder, self.words)
        for name, array in self._arrays():
            np.save(folder / name, array, allow_pickle=False)

    def _arrays(self) -> list[tuple[str, NDArray[np.float32]]]:
        return [(_VECTORS, self.directions), (_GAINS, self.gains), (_WEIGHTS, self.weights)]

    @classmethod
    def load(cls, folder: Path) -> "WordSide":
        """Reads a folder whose checksums were verified before.

        Raises:
            FormatError: if a file is missing or does not fit the others; it is named.
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
    """The words that queries are likeliest to hold, at most `limit`, each with its share.

    A share is the mean of what is known: the queries that the head learned from, how many of the index's own documents hold the word,
    and the queries by which people came to those documents.

    Args:
        corpus: the table of the documents' own words.
        head: of the model.
        limit: most words.
        asked: how often each word stands in the documents' clicked queries; None or empty: there are none.
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
