"""A sorted list of words on disk: word -> row, memory-mapped.

Two files: the words sorted by their UTF-8 bytes and joined, and their offsets. A look-up is a binary search whose result
is kept for words that come again.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError

__all__ = ["VOCABULARY_FILES", "Vocabulary"]

WORDS_FILE, OFFSETS_FILE = "words.bin", "offsets.npy"
VOCABULARY_FILES = (WORDS_FILE, OFFSETS_FILE)
# Longer words are rare and may be a whole hostile query: caching them would only hold memory.
CACHED_WORDS, CACHED_CHARACTERS = 100_000, 64
ABSENT = -1


class Vocabulary:
    """Words and their rows, immutable and safe to read from many threads.

    Args:
        words: UTF-8 words, sorted by their bytes, joined without separators.
        offsets: int64 [v + 1], where each word starts in `words`.
    """

    def __init__(self, words: memoryview, offsets: NDArray[np.int64]) -> None:
        self._words = words
        self._offsets = offsets
        # Not of a method: that would hold the mapped files in a circle, which only the collector ends.
        self._search = partial(_search, words, offsets)
        self._cached = lru_cache(maxsize=CACHED_WORDS)(self._search)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, word: str) -> int:
        """The word's row, -1 where it is not there."""
        return self._cached(word) if len(word) <= CACHED_CHARACTERS else self._search(word)

    def word(self, row: int) -> str:
        """The word of a row in 0 to v - 1."""
        return _bytes(self._words, self._offsets, row).decode()

    @staticmethod
    def save(folder: Path, words: Iterable[str]) -> None:
        """Writes words that are sorted by their UTF-8 bytes, each once."""
        encoded = [word.encode("utf-8", "replace") for word in words]
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        (folder / WORDS_FILE).write_bytes(b"".join(encoded))
        np.save(folder / OFFSETS_FILE, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Opens a vocabulary without reading its words.

        Raises:
            FormatError: a file is missing, damaged, or does not fit the other.
        """
        try:
            offsets = np.load(folder / OFFSETS_FILE, allow_pickle=False)
            size = (folder / WORDS_FILE).stat().st_size
            words = np.memmap(folder / WORDS_FILE, np.uint8, "r").data if size else memoryview(b"")
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(f"cannot read the vocabulary in {folder.name}/: {error}") from error
        if not _rises(offsets, size):
            raise FormatError(
                f"{folder.name}/{OFFSETS_FILE} does not cut the {size} bytes of {WORDS_FILE} into words; "
                "rebuild the index"
            )
        return cls(words, offsets)


def _rises(offsets: object, size: int) -> bool:
    """Whether whatever `np.load` found goes from 0 to `size` in int64 steps, none of them empty."""
    if not isinstance(offsets, np.ndarray) or offsets.dtype != np.int64 or offsets.ndim != 1:
        return False
    return bool(
        len(offsets) and offsets[0] == 0 and offsets[-1] == size and (offsets[1:] > offsets[:-1]).all()
    )


def _search(words: memoryview, offsets: NDArray[np.int64], word: str) -> int:
    key, count = word.encode("utf-8", "replace"), len(offsets) - 1
    row = bisect_left(range(count), key, key=partial(_bytes, words, offsets))
    return row if row < count and _bytes(words, offsets, row) == key else ABSENT


def _bytes(words: memoryview, offsets: NDArray[np.int64], row: int) -> bytes:
    return bytes(words[int(offsets[row]) : int(offsets[row + 1])])
