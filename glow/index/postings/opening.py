"""Maps the lists of an index and checks them: faults are reported at opening, with the file's name.

p   postings        v   words
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.index.postings.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    LARGEST_IMPACT,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
)
from glow.index.postings.lists import Lists
from glow.storage import map_array

__all__ = ["read_counts", "read_lists"]

CHECKED_AT_ONCE = 1 << 22


def read_lists(folder: Path, header: ImpactHeader, words: int) -> Lists:
    """Maps the lists and checks them.

    All values are checked, so that no later query fails at a row out of range.

    Args:
        folder: of the index.
        header: the arrays must match it.
        words: number of words in the vocabulary.

    Raises:
        FormatError: if a file is missing or inconsistent; the message names it.
    """
    if words != header.words:
        raise _damaged(
            folder, IMPACTS_HEADER, f"it counts {header.words} words, the vocabulary holds {words}"
        )
    starts, maxima = read_counts(folder, header)
    is_learned = header.kind == "learned"
    lists = Lists(
        starts,
        maxima,
        map_array(folder / ROWS_FILE, np.uint32, header.postings),
        map_array(folder / CODES_FILE, np.uint8, header.postings)
        if is_learned
        else map_array(folder / VALUES_FILE, np.float32, header.postings),
        map_array(folder / CAUSES_FILE, np.uint8, header.postings) if is_learned else None,
        header.unit,
    )
    for start in range(0, header.postings, CHECKED_AT_ONCE):
        block = slice(start, start + CHECKED_AT_ONCE)
        if (lists.rows[block] >= header.documents).any():
            raise _damaged(folder, ROWS_FILE, f"it names a row beyond the {header.documents} documents")
        if not _positive(lists.impacts[block]):
            raise _damaged(
                folder,
                CODES_FILE if is_learned else VALUES_FILE,
                "it holds an impact that is not finite and above 0",
            )
    return lists


def read_counts(folder: Path, header: ImpactHeader) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Maps the start of each word's postings, int64 [v + 1], and its largest impact, float32 [v].

    Raises:
        FormatError: if a file is missing or inconsistent.
    """
    starts = map_array(folder / STARTS_FILE, np.int64, header.words + 1)
    maxima = map_array(folder / MAXIMA_FILE, np.float32, header.words)
    if starts[0] != 0 or starts[-1] != header.postings or (starts[1:] <= starts[:-1]).any():
        raise _damaged(folder, STARTS_FILE, f"it does not cut {header.postings} postings into words")
    if not _positive(maxima):
        raise _damaged(folder, MAXIMA_FILE, "it holds an impact that is not finite and above 0")
    return starts, maxima


def _positive(impacts: NDArray[np.float32] | NDArray[np.uint8]) -> bool:
    return bool(((impacts > 0) & (impacts <= LARGEST_IMPACT)).all())


def _damaged(folder: Path, name: str, what: str) -> FormatError:
    return FormatError(f"{folder.name}/{name} is damaged: {what}; rebuild the index")
