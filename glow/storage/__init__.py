"""The files that every part of an index is made of: headers, arrays, sorted strings; each checked once, and strictly."""

from glow.storage.arrays import allocate, map_array, map_bytes, map_matrix, new_array
from glow.storage.header import read_header
from glow.storage.lines import append_whole, end_last_line
from glow.storage.ragged import ArrayWriter, places_of
from glow.storage.strings import ABSENT, SortedStrings

__all__ = [
    "ABSENT", "ArrayWriter", "SortedStrings", "allocate", "append_whole", "end_last_line", "map_array", "map_bytes", "map_matrix", "new_array",
    "places_of", "read_header",
]  # fmt: skip
