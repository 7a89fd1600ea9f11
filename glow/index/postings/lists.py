"""The files of an inverted index: header, vocabulary and lists of postings, mapped and checked.

p   postings        v   words       m   some rows
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from glow.errors import FormatError
from glow.options import StrictModel
from glow.storage import SortedStrings, map_array, read_header
from glow.text import AnalyzerName, LexicalFields

WORDS_FILE, OFFSETS_FILE = "words.bin", "offsets.npy"
VOCABULARY_FILES = (WORDS_FILE, OFFSETS_FILE)
# Longer words are rare and may be a whole hostile query: caching them would waste memory.
CACHED_WORDS, CACHED_CHARACTERS = 100_000, 64


class Vocabulary:
    """Words and their rows, immutable and safe to read from many threads."""

    def __init__(self, words: SortedStrings) -> None:
        self._words = words

        # A cached method would keep the mapped files in a reference cycle, which only the collector frees.
        def search(word: str) -> int:
            return words.find(word.encode("utf-8", "replace"))

        self._search = search
        self._cached = lru_cache(maxsize=CACHED_WORDS)(search)

    def __len__(self) -> int:
        return len(self._words)

    def row(self, word: str) -> int:
        """The word's row, -1 if it is absent."""
        return self._cached(word) if len(word) <= CACHED_CHARACTERS else self._search(word)

    def word(self, row: int) -> str:
        """The word of a row in 0 to v - 1."""
        return self._words.value(row)

    def starting(self, prefix: str) -> range:
        """The rows of the words that begin with a prefix."""
        return self._words.starting(prefix.encode("utf-8", "replace"))

    @staticmethod
    def save(folder: Path, words: Iterable[str]) -> None:
        """Writes distinct words, sorted by their UTF-8 bytes."""
        packed = SortedStrings.pack(word.encode("utf-8", "replace") for word in words)
        packed.save(folder / WORDS_FILE, folder / OFFSETS_FILE)

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Opens a vocabulary without reading its words."""
        return cls(SortedStrings.open(folder / WORDS_FILE, folder / OFFSETS_FILE))


FORMAT_VERSION: Literal[1] = 1
IMPACTS_FOLDER = "impacts"
IMPACTS_HEADER = "impacts.json"
STARTS_FILE, MAXIMA_FILE, ROWS_FILE, VALUES_FILE = "starts.npy", "maxima.npy", "rows.npy", "impacts.npy"
CODES_FILE, CAUSES_FILE = "codes.npy", "causes.npy"
_SHARED_FILES = (IMPACTS_HEADER, *VOCABULARY_FILES, STARTS_FILE, MAXIMA_FILE)
IMPACTS_FILES = (*_SHARED_FILES, ROWS_FILE, VALUES_FILE)
LEARNED_FOLDER = "learned"
LEARNED_FILES = (*_SHARED_FILES, ROWS_FILE, CODES_FILE, CAUSES_FILE)
"""Files of learned impacts: 8-bit codes, each with the position of the document's word that it comes from."""
STAYING_FILES = _SHARED_FILES
"""Files that stay in the version's directory if the lists are in a store."""
LARGEST_IMPACT = 1e30
"""Limit of an impact, so that a query's sum is finite in float32."""


class ImpactHeader(StrictModel):
    """`impacts.json`."""

    format: Literal[1] = FORMAT_VERSION  # format version
    kind: Literal["bm25", "learned"]  # source of the impacts
    analyzer: AnalyzerName = "plain"  # turned words into terms
    layout: Literal["plain"] = "plain"  # of the lists
    fields: LexicalFields = LexicalFields()  # whose words it holds, besides the model's text fields
    documents: int = Field(ge=0, le=2**32 - 1)  # documents, words, postings: n, v and p
    words: int = Field(ge=0)
    postings: int = Field(ge=0)
    # Of the impacts: for BM25 k1, b and the average length; for learned ones `unit`, the impact of code 1,
    # and `budget`, the most words of a document
    parameters: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "learned" and (self.unit <= 0.0 or not {"unit", "budget"} <= self.parameters.keys()):
            raise ValueError("learned impacts need the parameters unit, above 0, and budget")
        if self.unit > LARGEST_IMPACT:
            raise ValueError(
                f"the parameter unit is above {LARGEST_IMPACT:.0e}: sums of it would not be finite"
            )
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the index."""
        return LEARNED_FILES if self.kind == "learned" else IMPACTS_FILES

    @property
    def unit(self) -> float:
        """Impact of code 1 for learned impacts; 1 for impacts stored as numbers."""
        return self.parameters.get("unit", 1.0)


def read_impacts_header(folder: Path) -> ImpactHeader:
    """Reads the header."""
    return read_header(folder / IMPACTS_HEADER, ImpactHeader)


POSTINGS_PER_LOOKUP = 32
"""Looking up one row in a word's postings costs about as much as adding this many of them."""

Found = tuple[NDArray[np.intp], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class PostingList:
    """The postings of one query word: its documents, and what it adds to each."""

    rows: NDArray[np.uint32]  # uint32 [p], ascending
    values: NDArray[np.float32] | NDArray[np.uint8]  # float32 [p], or uint8 codes
    factor: np.float32  # impact per unit of a value; 1 for float32 impacts
    largest: float  # its largest impact on any document

    @property
    def count(self) -> int:
        """Number of postings, >= 1."""
        return len(self.rows)

    def impacts(self, places: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """Impacts at places of the list, float32."""
        values = self.values[places]
        if self.factor == 1.0 and values.dtype == np.float32:
            return values  # type: ignore[return-value]
        return np.multiply(values, self.factor, dtype=np.float32)

    def find(self, rows: NDArray[np.uint32]) -> Found:
        """Which of some rows, uint32 [m] ascending, are in it: indexes in `rows`, and for each its place in the list."""
        places = self.rows.searchsorted(rows)  # methods: numpy's functions would take half of the time
        np.minimum(places, len(self.rows) - 1, out=places)
        (here,) = (self.rows[places] == rows).nonzero()
        return here, places[here]


class Block(NamedTuple):
    """Some postings: the word of each, its row, its impact (or code) and its cause."""

    words: NDArray[np.int64]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The postings of all words."""

    starts: NDArray[np.int64]  # int64 [v + 1], start of each word's postings among all
    maxima: NDArray[np.float32]  # float32 [v], each word's largest impact
    rows: NDArray[np.uint32]  # uint32 [p], the documents of each word, ascending
    # float32 [p], finite and > 0; or uint8 codes > 0, to be multiplied by the unit
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None  # uint8 [p] of learned impacts; None if impacts are not learned
    unit: float = 1.0  # impact of code 1

    def list(self, word: int, times: float) -> PostingList:
        """A word's postings, with every impact multiplied by `times`."""
        places = self._postings(word)
        return PostingList(
            self.rows[places],
            self.impacts[places],
            np.float32(self.unit * times),
            float(self.maxima[word]) * times,
        )

    def cause(self, word: int, row: int) -> int | None:
        """Position of the document's word that a word's learned impact comes from; None if there is none."""
        if self.causes is None:
            return None
        places = self._postings(word)
        at = int(np.searchsorted(self.rows[places], np.uint32(row)))
        is_there = at < places.stop - places.start and int(self.rows[places][at]) == row
        return int(self.causes[places][at]) if is_there else None

    def blocks(self, most: int) -> Iterator[Block]:
        """All postings, in order, in blocks of about `most`; codes instead of impacts, if they are learned."""
        for start in range(0, len(self.rows), most):
            block = slice(start, min(start + most, len(self.rows)))
            words = np.searchsorted(self.starts, np.arange(block.start, block.stop), "right") - 1
            causes = None if self.causes is None else self.causes[block]
            yield Block(words, self.rows[block], self.impacts[block], causes)

    def _postings(self, word: int) -> slice:
        return slice(int(self.starts[word]), int(self.starts[word + 1]))


CHECKED_AT_ONCE = 1 << 22


def read_lists(folder: Path, header: ImpactHeader, words: int) -> Lists:
    """Maps the lists and checks them.

    All values are checked, so that no later query fails at a row out of range.
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
    """Maps the start of each word's postings, int64 [v + 1], and its largest impact, float32 [v]."""
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
