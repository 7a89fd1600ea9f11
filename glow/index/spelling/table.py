"""An open spelling table: from a misspelled word to possible corrections."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.spelling.edits import forms, is_one_edit, key_of
from glow.index.spelling.format import (
    DFS_FILE,
    KEYS_FILE,
    OFFSETS_FILE,
    PLACES_FILE,
    SPELLING_HEADER,
    WORDS_FILE,
    SpellingHeader,
)
from glow.storage import ABSENT, SortedStrings, map_array, read_header

__all__ = ["SpellingTable"]

MOST_LOOKED_AT = 256
"""Most words of one form to check: many may share a form of four letters."""


class SpellingTable:
    """Words and their forms, memory-mapped; immutable and safe to read from many threads.

    Args:
        words: the words, sorted.
        dfs: uint32 [n], document frequency of each.
        keys: uint32 [f], ascending: keys of the words' forms.
        places: uint32 [f], the word of each form.
    """

    def __init__(
        self,
        words: SortedStrings,
        dfs: NDArray[np.uint32],
        keys: NDArray[np.uint32],
        places: NDArray[np.uint32],
    ) -> None:
        self._words, self._dfs, self._keys, self._places = words, dfs, keys, places

    def __len__(self) -> int:
        return len(self._words)

    def has(self, word: str) -> bool:
        """Whether any document of the collection has the word."""
        return self._words.find(word.encode("utf-8", "replace")) != ABSENT

    def items(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        for place, df in enumerate(self._dfs.tolist()):
            yield self._words.value(place), df

    def candidates(self, word: str) -> dict[str, int]:
        """The words one edit away, with their document frequencies."""
        keys = np.fromiter(map(key_of, forms(word)), np.uint32)
        starts = np.searchsorted(self._keys, keys, "left").tolist()
        stops = np.searchsorted(self._keys, keys, "right").tolist()
        places = {
            place
            for start, stop in zip(starts, stops, strict=True)
            for place in self._places[start : min(stop, start + MOST_LOOKED_AT)].tolist()
        }
        found = ((self._words.value(place), int(self._dfs[place])) for place in places)
        return {other: df for other, df in found if is_one_edit(word, other)}

    @classmethod
    def open(cls, folder: Path) -> "SpellingTable":
        """Maps the files that `build_spelling` wrote.

        Raises:
            FormatError: if a file is missing, damaged, of another format version, or inconsistent with the others.
        """
        header = read_header(folder / SPELLING_HEADER, SpellingHeader)
        words = SortedStrings.open(folder / WORDS_FILE, folder / OFFSETS_FILE, header.words)
        dfs = map_array(folder / DFS_FILE, np.uint32, header.words)
        keys, places = (
            map_array(folder / name, np.uint32, header.forms) for name in (KEYS_FILE, PLACES_FILE)
        )
        if (places >= header.words).any():
            raise FormatError(
                f"{folder.name}/{PLACES_FILE} is damaged: it names a word beyond the {header.words}; rebuild the index"
            )
        return cls(words, dfs, keys, places)
