"""The vocabulary of an inverted index: word -> row, memory-mapped; look-ups are cached."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from glow.storage import SortedStrings

__all__ = ["VOCABULARY_FILES", "Vocabulary"]

WORDS_FILE, OFFSETS_FILE = "words.bin", "offsets.npy"
VOCABULARY_FILES = (WORDS_FILE, OFFSETS_FILE)
# Longer words are rare and may be a whole hostile query: caching them would waste memory.
CACHED_WORDS, CACHED_CHARACTERS = 100_000, 64


class Vocabulary:
    """Words and their rows, immutable and safe to read from many threads.

    Args:
        words: the words, sorted.
    """

    def __init__(self, words: SortedStrings) -> None:
        self._words = words

        # A cached method would keep the mapped files in a reference cycle, which only the collector frees.
        def search(word: str) -> int:
            return words.find(word.encode("utf-8", "replace"))

        self._search = search
        self._cached = lru_cache(maxsize=CACHED_WORDS)(search)

    def __len__(self) -> int:
        return len(self._words)

    def row(self, word: str) -> int:
        """The word's row, -1 if it is absent."""
        return self._cached(word) if len(word) <= CACHED_CHARACTERS else self._search(word)

    def word(self, row: int) -> str:
        """The word of a row in 0 to v - 1."""
        return self._words.value(row)

    @staticmethod
    def save(folder: Path, words: Iterable[str]) -> None:
        """Writes distinct words, sorted by their UTF-8 bytes."""
        packed = SortedStrings.pack(word.encode("utf-8", "replace") for word in words)
        packed.save(folder / WORDS_FILE, folder / OFFSETS_FILE)

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Opens a vocabulary without reading its words.

        Raises:
            FormatError: if a file is missing, damaged, or inconsistent with the other.
        """
        return cls(SortedStrings.open(folder / WORDS_FILE, folder / OFFSETS_FILE))
