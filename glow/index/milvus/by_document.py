"""Postings in the order of documents: an inverted index is spooled to disk by ranges of rows, and each range is sorted.

p   postings        m   rows of a call
"""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index.postings import SegmentImpacts

__all__ = ["DocumentPostings", "PostingsOfRow"]

RANGE = 1 << 18
"""Rows of one file: some 200 MB in memory at 60 postings a document."""
AT_ONCE = 1 << 20
RECORD = np.dtype([("row", "<u4"), ("word", "<u4"), ("value", "<f4"), ("cause", "u1")])


class PostingsOfRow(NamedTuple):
    """The postings of one document.

    Attributes:
        words: int64 [p], ascending rows of the vocabulary.
        values: float32 [p], impacts or codes.
        causes: uint8 [p], of learned impacts.
    """

    words: NDArray[np.int64]
    values: NDArray[np.float32]
    causes: NDArray[np.uint8]


class DocumentPostings:
    """Reads an inverted index document by document.

    Args:
        impacts: the index.
        folder: for temporary files; created, and removed by `close`.
    """

    def __init__(self, impacts: SegmentImpacts, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._open, self._sorted = folder, -1, np.empty(0, RECORD)
        self.close()
        for block in impacts.blocks(AT_ONCE):
            records = np.empty(len(block.rows), RECORD)
            records["row"], records["word"], records["value"] = block.rows, block.words, block.impacts
            records["cause"] = 0 if block.causes is None else block.causes
            parts = block.rows // RANGE
            for part in np.unique(parts).tolist():
                with self._file(part).open("ab") as file:
                    file.write(records[parts == part].tobytes())

    def rows(self, start: int, stop: int) -> list[PostingsOfRow]:
        """The postings of rows `start` to `stop`, which are in one range."""
        self._read(start // RANGE)
        records = self._sorted
        places = np.searchsorted(records["row"], np.arange(start, stop + 1)).tolist()
        parts = (records[first:last] for first, last in pairwise(places))
        return [PostingsOfRow(each["word"].astype(np.int64), each["value"], each["cause"]) for each in parts]

    def close(self) -> None:
        """Removes the files."""
        for file in self._folder.glob("range-*"):
            file.unlink()

    def _file(self, part: int) -> Path:
        return self._folder / f"range-{part}"

    def _read(self, part: int) -> None:
        if part != self._open:
            file = self._file(part)
            records = np.fromfile(file, RECORD) if file.is_file() else np.empty(0, RECORD)
            self._sorted = records[np.lexsort((records["word"], records["row"]))]
            self._open = part
