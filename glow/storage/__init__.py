"""The file formats that every index component uses: headers, arrays, sorted strings. Each is checked strictly, once."""

from glow.storage.arrays import allocate, map_array, map_bytes, map_matrix, new_array
from glow.storage.header import read_header
from glow.storage.lines import append_whole, end_last_line
from glow.storage.ragged import ArrayWriter, places_of
from glow.storage.strings import ABSENT, SortedStrings

__all__ = [
    "ABSENT", "ArrayWriter", "SortedStrings", "allocate", "append_whole", "end_last_line", "map_array", "map_bytes", "map_matrix", "new_array",
    "places_of", "read_header",
]  # fmt: skip
