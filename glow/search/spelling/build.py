"""Writing a spelling table."""

from array import array
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from glow.search.lexical import IMPACTS_FOLDER, ImpactIndex
from glow.search.spelling.edits import forms, key_of
from glow.search.spelling.format import (
    DFS_FILE,
    KEYS_FILE,
    OFFSETS_FILE,
    PLACES_FILE,
    SPELLING_FOLDER,
    SPELLING_HEADER,
    WORDS_FILE,
    SpellingHeader,
)
from glow.search.spelling.table import SpellingTable
from glow.storage import SortedStrings
from glow.text import is_lexical

__all__ = ["LONGEST_WORD", "SHORTEST_WORD", "build_spelling", "is_spelled", "merged_words", "spell_impacts"]

SHORTEST_WORD, LONGEST_WORD = 4, 24
"""Letters: shorter words are one edit from too many others, longer ones are rarely language."""


def is_spelled(word: str) -> bool:
    """Whether a word is one that people may misspell: letters alone, neither few nor very many."""
    return SHORTEST_WORD <= len(word) <= LONGEST_WORD and word.isalpha()


def build_spelling(folder: Path, words: Iterable[tuple[str, int]]) -> SpellingHeader:
    """Writes the spelling table of a collection.

    Args:
        folder: made if need be.
        words: each word once, in the order of its UTF-8 bytes, with its document frequency; those that nobody misspells are
            left out.

    Returns:
        What was written.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept: list[bytes] = []
    dfs, keys, places = array("I"), array("I"), array("I")
    for word, df in words:
        if not is_spelled(word):
            continue
        for form in forms(word):
            keys.append(key_of(form))
            places.append(len(kept))
        kept.append(word.encode())
        dfs.append(df)
    SortedStrings.pack(kept).save(folder / WORDS_FILE, folder / OFFSETS_FILE)
    all_keys = np.array(keys, np.uint32)
    order = np.argsort(all_keys, kind="stable")
    np.save(folder / KEYS_FILE, all_keys[order], allow_pickle=False)
    np.save(folder / PLACES_FILE, np.array(places, np.uint32)[order], allow_pickle=False)
    np.save(folder / DFS_FILE, np.array(dfs, np.uint32), allow_pickle=False)
    header = SpellingHeader(words=len(kept), forms=len(keys))
    header.save(folder / SPELLING_HEADER)
    return header


def spell_impacts(folder: Path, words: Iterable[tuple[str, int]]) -> None:
    """Writes `spelling/` beside `impacts/`, of the words that its documents hold.

    Args:
        folder: of a version, a delta or a segment.
        words: candidates, as for `build_spelling`: of all fields, or of documents that may be gone.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    impacts = ImpactIndex.open(folder / IMPACTS_FOLDER)
    # Words that are terms are counted there, more exactly than before documents went.
    held = (
        impacts.word_counts()
        if impacts.analyzer.name == "plain"
        else ((word, df) for word, df in words if is_lexical(word) and impacts.holds(word))
    )
    build_spelling(folder / SPELLING_FOLDER, held)


def merged_words(tables: Iterable[SpellingTable]) -> list[tuple[str, int]]:
    """The words of several tables as those of one, for `spell_impacts`."""
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(dict(table.items()))
    return sorted(counts.items(), key=lambda item: item[0].encode())
