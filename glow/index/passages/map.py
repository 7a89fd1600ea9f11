"""Passages of long documents: maps rows of the dense index to documents, and hits of passages to hits of documents.

An index version with passages has one vector for each, in the order of the documents; everything else is per
document. `passages/` holds `passages.json` and memory-mapped arrays:

    documents.npy        uint32 [p]      the document's row
    starts.npy, ends.npy uint32 [p]      characters of its body (`glow.text.passages.body_text`)
    first.npy            uint32 [n + 1]  the first passage of each document, and p

    p   passages        n   documents       q   queries
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import FormatError
from glow.index.row_mask import RowMask
from glow.options import StrictModel
from glow.records import Document
from glow.storage import map_array, read_header
from glow.text import body_text

__all__ = [
    "ARRAYS",
    "PASSAGES_FILES",
    "PASSAGES_FOLDER",
    "FoundPassage",
    "PassageMap",
    "PassagesHeader",
    "read_passages_header",
]

PASSAGES_FOLDER = "passages"
PASSAGES_HEADER = "passages.json"
ARRAYS = ("documents", "starts", "ends", "first")
PASSAGES_FILES = tuple(
    f"{PASSAGES_FOLDER}/{name}" for name in (PASSAGES_HEADER, *(f"{a}.npy" for a in ARRAYS))
)
"""Every file of the folder, relative to the version."""
FORMAT_VERSION: Literal[1] = 1
Count = Annotated[int, Field(ge=0, lt=2**32)]
Folded = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Scores float32 [k] descending, rows of documents int64 [k], rows of the best passage of each int64 [k]."""


class PassagesHeader(StrictModel):
    """`passages.json`.

    Attributes:
        format: format version.
        field: the field that was split.
        limit: most passages per document.
        documents: n.
        passages: p.
        left_out: number of documents with text beyond the limit, which was left out.
    """

    format: Literal[1] = FORMAT_VERSION
    field: str
    limit: Annotated[int, Field(ge=1)]
    documents: Count
    passages: Count
    left_out: Count


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A part of a document's body.

    Attributes:
        field: the field that was split.
        start, end: in characters of its value; list values are joined by line feeds.
        text: the text between them.
    """

    field: str
    start: int
    end: int
    text: str


def read_passages_header(folder: Path) -> PassagesHeader:
    """Reads `passages.json` from the directory `passages`.

    Raises:
        FormatError: if it is missing, or of another format.
    """
    return read_header(folder / PASSAGES_HEADER, PassagesHeader)


class PassageMap:
    """Maps rows of passages to documents and positions in them; safe to use from many threads.

    Args:
        header: of the directory.
        documents, starts, ends: uint32 [p], see the module's docstring; documents ascend.
        first: uint32 [n + 1].
        order: uint32 [n], each document's rank among ties, each once; None: its row.

    Attributes:
        header, documents, starts, ends, first: as given.
        count: number of live passages; rows exceed it if some are deleted.
        order: uint32 [p], each passage's rank among ties: by document, then as in its body; None: its row.
    """

    def __init__(
        self,
        header: PassagesHeader,
        documents: NDArray[np.uint32],
        starts: NDArray[np.uint32],
        ends: NDArray[np.uint32],
        first: NDArray[np.uint32],
        order: NDArray[np.uint32] | None = None,
    ) -> None:
        self.header = header
        self.count = len(documents)
        self.documents = documents
        self.starts = starts
        self.ends = ends
        self.first = first
        self.order = None if order is None else _passage_order(order, first)

    def __len__(self) -> int:
        return len(self.documents)

    @classmethod
    def open(cls, folder: Path, order: NDArray[np.uint32] | None = None) -> "PassageMap":
        """Opens the directory `passages` of a version.

        Args:
            folder: the directory.
            order: uint32 [n], ranks of documents among ties, as for the class.

        Raises:
            FormatError: if a file is missing, damaged, of another format version, or inconsistent with the others; the
                message names it.
        """
        header = read_passages_header(folder)
        lengths = {name: header.passages for name in ARRAYS} | {"first": header.documents + 1}
        arrays = {name: map_array(folder / f"{name}.npy", np.uint32, lengths[name]) for name in ARRAYS}
        if fault := _fault(**arrays):
            raise FormatError(f"{folder.name}/{fault}; rebuild the index")
        return cls(header, **arrays, order=order)

    def followed_by(
        self, other: "PassageMap", order: NDArray[np.uint32] | None = None, gone: int = 0
    ) -> "PassageMap":
        """Appends another map in memory: its documents and passages follow these.

        Args:
            other: split by the same rules.
            order: for the documents of both, as for the class.
            gone: number of deleted passages of both.
        """
        documents, passages = self.header.documents, self.header.passages
        header = self.header.model_copy(
            update={
                "documents": documents + other.header.documents,
                "passages": passages + other.header.passages,
                "left_out": self.header.left_out + other.header.left_out,
            }
        )
        joined = PassageMap(
            header,
            np.concatenate([self.documents, other.documents + np.uint32(documents)]),
            np.concatenate([self.starts, other.starts]),
            np.concatenate([self.ends, other.ends]),
            np.concatenate([self.first[:-1], other.first + np.uint32(passages)]),
            order,
        )
        joined.count -= gone
        return joined

    def passage_of(self, document: Document, row: int) -> FoundPassage:
        """The passage of a row.

        Args:
            document: the passage's document.
            row: of the passage, in [0, p).
        """
        start, end = int(self.starts[row]), int(self.ends[row])
        return FoundPassage(self.header.field, start, end, body_text(document, self.header.field)[start:end])

    def mask(self, allowed: RowMask) -> RowMask:
        """The passages of allowed documents."""
        mask = RowMask(np.repeat(allowed.mask, np.diff(self.first)))
        mask.tell(allowed.expression)
        return mask

    def fold(self, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> Folded:
        """Hits of passages as hits of documents: each document has the place of its best passage.

        Args:
            scores: float32 [m], descending.
            rows: int64 [m], of passages, best first and each once; -1 is not a hit.

        Returns:
            Scores, documents and best passages, as `Folded`.
        """
        met = self.documents[rows[rows >= 0]]
        places = np.sort(np.unique(met, return_index=True)[1])
        return scores[places], met[places].astype(np.int64), rows[places]


def _fault(
    documents: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    ends: NDArray[np.uint32],
    first: NDArray[np.uint32],
) -> str | None:
    """Which file is inconsistent, and why; a valid map leads to no row out of range."""
    if int(first[0]) != 0 or int(first[-1]) != len(documents):
        return f"first.npy runs from {first[0]} to {first[-1]}, expected 0 to {len(documents)}"
    if not (first[:-1] < first[1:]).all():
        return "first.npy does not ascend: every document has a passage"
    if not np.array_equal(documents, np.repeat(np.arange(len(first) - 1), np.diff(first))):
        return "documents.npy and first.npy do not fit together"
    if not (starts <= ends).all():
        return "starts.npy and ends.npy do not fit together: a passage ends before it starts"
    return None


def _passage_order(order: NDArray[np.uint32], first: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Ranks of documents among ties as ranks of their passages, which follow one another as in the body."""
    counts = np.diff(first)
    by_place = np.argsort(order)
    begins = np.empty(len(counts), np.int64)
    begins[by_place] = np.cumsum(counts[by_place], dtype=np.int64) - counts[by_place]
    within = np.arange(first[-1], dtype=np.int64) - np.repeat(first[:-1], counts)
    places: NDArray[np.uint32] = (np.repeat(begins, counts) + within).astype(np.uint32)
    return places
