"""Writes a spelling table."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from glow.index.postings import SegmentImpacts
from glow.index.spelling.edits import forms, key_of
from glow.index.spelling.format import (
    DFS_FILE,
    KEYS_FILE,
    OFFSETS_FILE,
    PLACES_FILE,
    SPELLING_HEADER,
    WORDS_FILE,
    SpellingHeader,
)
from glow.index.spelling.table import SpellingTable
from glow.storage import SortedStrings
from glow.text import TermTable, is_lexical

__all__ = [
    "LONGEST_WORD", "SHORTEST_WORD", "build_spelling", "count_words", "is_spelled", "merged_words",
]  # fmt: skip

SHORTEST_WORD, LONGEST_WORD = 4, 24
"""In letters: shorter words are one edit from too many others, longer ones are rarely language."""


def is_spelled(word: str) -> bool:
    """Whether typo correction covers a word: only letters, neither few nor very many."""
    return SHORTEST_WORD <= len(word) <= LONGEST_WORD and word.isalpha()


def build_spelling(folder: Path, words: Iterable[tuple[str, int]]) -> SpellingHeader:
    """Writes the spelling table of a collection.

    Args:
        folder: created if missing.
        words: each word once, in the order of its UTF-8 bytes, with its document frequency; words that typo correction
            does not cover are left out.

    Returns:
        The written header.

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


def merged_words(impacts: SegmentImpacts, tables: Iterable[SpellingTable]) -> Iterator[tuple[str, int]]:
    """The words of a merged index, for `build_spelling`.

    Without stemming, the merged index counts them. With stemming, those words of the tables stay whose stem it still has, with the
    sums of their document frequencies; words of deleted documents may stay until the next build.

    Args:
        impacts: merged.
        tables: of the merged segments.
    """
    if impacts.analyzer.name == "plain":
        yield from impacts.word_counts()
        return
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(dict(table.items()))
    for word in sorted(counts, key=str.encode):
        if impacts.holds(word):
            yield word, counts[word]


def count_words(known: TermTable, documents: Iterable[Iterable[str]]) -> Iterator[tuple[str, int]]:
    """Words that typo correction covers, with their document frequencies, for `build_spelling`.

    Args:
        known: statistics of the documents' words; they limit the memory.
        documents: the indexed words of each.
    """
    words = [word for word, _ in known.items() if is_spelled(word) and is_lexical(word)]
    wanted, counts = frozenset(words), Counter[str]()
    for document in documents:
        counts.update(wanted.intersection(document))
    for word in words:
        if counts[word]:
            yield word, counts[word]
