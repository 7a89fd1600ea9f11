"""Files of a spelling table: words with their document frequencies, and a sorted index of their forms.

n   words       f   forms of all words
"""

from typing import Literal

from pydantic import Field

from glow.options import StrictModel

__all__ = [
    "DFS_FILE", "KEYS_FILE", "OFFSETS_FILE", "PLACES_FILE", "SPELLING_FILES", "SPELLING_FOLDER",
    "SPELLING_HEADER", "WORDS_FILE", "SpellingHeader",
]  # fmt: skip

SPELLING_FOLDER = "spelling"
SPELLING_HEADER = "spelling.json"
WORDS_FILE, OFFSETS_FILE = "words.bin", "offsets.npy"
DFS_FILE = "dfs.npy"
"""uint32 [n], document frequency of each word."""
KEYS_FILE = "keys.npy"
"""uint32 [f], ascending: the key of each form."""
PLACES_FILE = "places.npy"
"""uint32 [f], the word of each form."""
SPELLING_FILES = (SPELLING_HEADER, WORDS_FILE, OFFSETS_FILE, DFS_FILE, KEYS_FILE, PLACES_FILE)


class SpellingHeader(StrictModel):
    """`spelling.json`."""

    format: Literal[1] = 1
    words: int = Field(ge=0)
    forms: int = Field(ge=0)
