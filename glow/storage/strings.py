"""Sorted strings on disk: their joined UTF-8 text, and where each ends. Memory-mapped, found by binary search.

n   strings, in the order of their bytes, which is that of their code points
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.storage.arrays import map_array, map_bytes

__all__ = ["ABSENT", "SortedStrings"]

ABSENT = -1


class SortedStrings:
    """Distinct strings in order; immutable and safe to read from many threads.

    Args:
        text: the strings as UTF-8, joined without separators.
        ends: int64 [n + 1], where each ends, after a leading 0.

    Attributes:
        text, ends: as given.
    """

    __slots__ = ("_places", "ends", "text")

    def __init__(self, text: memoryview, ends: NDArray[np.int64]) -> None:
        self.text = text
        self.ends = ends
        self._places = ends.data  # gives plain numbers, in a third of numpy's time

    def __len__(self) -> int:
        return len(self.ends) - 1

    @classmethod
    def pack(cls, keys: Iterable[bytes]) -> "SortedStrings":
        """Builds it in memory from sorted, distinct UTF-8 strings."""
        keys = list(keys)
        sizes = np.fromiter(map(len, keys), np.int64, len(keys))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        return cls(memoryview(b"".join(keys)), ends)

    def save(self, text: Path, ends: Path) -> None:
        """Writes both files."""
        text.write_bytes(self.text)
        np.save(ends, self.ends, allow_pickle=False)

    @classmethod
    def open(cls, text: Path, ends: Path, count: int | None = None) -> "SortedStrings":
        """Maps the files that `save` wrote.

        Args:
            text, ends: the files.
            count: n, if a header gives it.

        Raises:
            FormatError: if a file is missing, damaged, or inconsistent with the other; the message names it.
        """
        data = map_bytes(text)
        places = map_array(ends, np.int64, None if count is None else count + 1)
        if not len(places) or places[0] or places[-1] != len(data) or (places[1:] <= places[:-1]).any():
            raise FormatError(
                f"{ends.parent.name}/{ends.name} does not cut the {len(data)} bytes of {text.name} into words; "
                "rebuild the index"
            )
        return cls(data.data, places)

    def key(self, place: int) -> bytes:
        """The UTF-8 of a string, 0 to n - 1."""
        places = self._places
        return bytes(self.text[places[place] : places[place + 1]])

    def value(self, place: int) -> str:
        """A string, 0 to n - 1."""
        return self.key(place).decode("utf-8", "replace")

    def find(self, key: bytes) -> int:
        """The position of a string, or `ABSENT`."""
        count = len(self._places) - 1
        place = bisect_left(range(count), key, key=self.key)
        return place if place < count and self.key(place) == key else ABSENT

    def place(self, key: bytes, *, after: bool = False) -> int:
        """How many strings come before this one, which may be absent; if `after`, this one is counted too."""
        search = bisect_right if after else bisect_left
        return search(range(len(self)), key, key=self.key)
