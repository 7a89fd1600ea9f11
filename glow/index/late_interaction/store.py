"""The store of token embeddings: memory-mapped signs of every row's tokens.

v   rows of vectors     t   all tokens       P   dimensions of a token      m   requested rows
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import FormatError, MismatchError
from glow.index.late_interaction.scoring import MOST_NUMBERS, pool, stored_tokens
from glow.options import StrictModel
from glow.storage import ArrayWriter, map_array, map_matrix, places_of, read_header
from glow.text import WeightedTokens

FORMAT_VERSION: Literal[1] = 1
LATE_FOLDER = "late"
LATE_HEADER = "late.json"
STARTS_FILE, CODES_FILE, PLACES_FILE = "starts.npy", "codes.npy", "places.npy"
LATE_FILES = (LATE_HEADER, STARTS_FILE, CODES_FILE, PLACES_FILE)


class LateHeader(StrictModel):
    """`late.json`."""

    format: Literal[1] = FORMAT_VERSION  # format version
    # Hash of the model that encoded the documents; queries must be encoded by the same one
    model: str = Field(min_length=1)
    # P, dimensions of a token, each stored as its sign
    size: int = Field(ge=8, le=MOST_NUMBERS, multiple_of=8)
    budget: int = Field(ge=1, le=2**16 - 1)  # most tokens of a row
    rows: int = Field(ge=0, le=2**32 - 1)  # rows, tokens: v and t
    tokens: int = Field(ge=0)


class CodedTokens(NamedTuple):
    """Rows in their stored form."""

    lengths: NDArray[np.int64]  # number of groups of each, int64 [r]
    codes: NDArray[np.uint8]  # uint8 [t, P / 8], one row after another
    # uint16 [t], position of the group's representative in the document or passage; [CLS] is 0
    places: NDArray[np.uint16]


def encode_tokens(
    tokens: NDArray[np.float32],  # float32 [L, P], finite, of norm 1; L >= 1, P a multiple of 8
    budget: int,  # most groups, >= 1
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Binary codes of one document's tokens.

    Returns uint8 [g, P / 8], a bit for each dimension of a group's mean, 1 if it is at least 0, and int64 [g], the
    token of each group that is nearest to its mean; of ties, the first.
    """
    label = pool(tokens, budget)
    mates = np.argsort(label, kind="stable")
    sums = np.add.reduceat(tokens[mates], np.unique(label[mates], return_index=True)[1], axis=0)
    likeness = np.einsum("lp,lp->l", tokens, sums[label])
    best_first = np.lexsort((-likeness, label))
    leaders = best_first[np.unique(label[best_first], return_index=True)[1]]
    return np.packbits(sums >= 0, axis=1), leaders


def code_texts(
    sequences: Sequence[WeightedTokens],
    # float32 [L or more, P] of each, finite, of norm 1; padding is ignored
    tokens: Sequence[NDArray[np.float32]],
    budget: int,  # most groups of a row, >= 1
) -> CodedTokens:
    """The stored form of documents or passages, in their order."""
    kept = [stored_tokens(each) for each in sequences]
    coded = [encode_tokens(each[places], budget) for each, places in zip(tokens, kept, strict=True)]
    return CodedTokens(
        np.array([len(codes) for codes, _ in coded], np.int64),
        np.concatenate([codes for codes, _ in coded]),
        np.concatenate([places[leaders] for places, (_, leaders) in zip(kept, coded, strict=True)]).astype(
            np.uint16
        ),
    )


class LateWriter:
    """Writes a store row by row; only the rows of one call are held in memory."""

    def __init__(
        self,
        folder: Path,  # to create; it must not exist
        header: LateHeader,  # of the store; its counts are set at the end
    ) -> None:
        folder.mkdir(parents=True)
        self._folder, self._header = folder, header
        self._starts = ArrayWriter(folder / STARTS_FILE, np.int64)
        self._codes = ArrayWriter(folder / CODES_FILE, np.uint8, header.size // 8)
        self._places = ArrayWriter(folder / PLACES_FILE, np.uint16)
        self._starts.add(np.zeros(1, np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._starts, self._codes, self._places):
            file.close()

    def add(self, rows: CodedTokens) -> None:
        """Adds rows, in their order."""
        lengths = rows.lengths
        if ((lengths < 1) | (lengths > self._header.budget)).any():
            raise ValueError(
                f"rows of {lengths.min()} to {lengths.max()} tokens, expected 1 to {self._header.budget}"
            )
        self._starts.add(self._codes.length + np.cumsum(lengths))
        self._codes.add(rows.codes)
        self._places.add(rows.places)

    def close(self) -> LateHeader:
        """Finishes the files; returns the header as written."""
        for file in (self._starts, self._codes, self._places):
            file.end()
        counts = {"rows": self._starts.length - 1, "tokens": self._codes.length}
        written = self._header.model_copy(update=counts)
        written.save(self._folder / LATE_HEADER)
        return written


class LateTokens:
    """An open store; safe to read from many threads."""

    def __init__(
        self,
        header: LateHeader,  # of the store
        starts: NDArray[np.int64],  # int64 [v + 1], the start of each row's tokens, and t
        codes: NDArray[np.uint8],  # uint8 [t, P / 8], signs
        places: NDArray[np.uint16],  # uint16 [t], position of the token that each code represents
    ) -> None:
        self.header = header
        self._starts, self._codes, self._places = starts, codes, places

    def __len__(self) -> int:
        return self.header.rows

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        lengths: NDArray[np.int64] = self._starts[rows + 1] - self._starts[rows]
        return lengths

    def read(
        self,
        rows: NDArray[np.int64],  # int64 [m], each in 0 to v - 1, in any order
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The codes of rows, for `max_sim`.

        Returns uint8 [tokens of these rows, P / 8], one row after another, and int64 [m], the start of each row.
        """
        lengths = self.lengths(rows)
        # Three times as fast as an index in brackets.
        return self._codes.take(places_of(self._starts, rows), axis=0), np.cumsum(lengths) - lengths

    def places(self, row: int) -> NDArray[np.uint16]:
        """Positions of the tokens that a row's codes represent, uint16 [tokens of the row]."""
        return self._places[self._starts[row] : self._starts[row + 1]]

    def coded(self, rows: NDArray[np.int64]) -> CodedTokens:
        """Rows in their stored form."""
        tokens = places_of(self._starts, rows)
        return CodedTokens(self.lengths(rows), self._codes.take(tokens, axis=0), self._places[tokens])

    def require_like(self, other: LateHeader) -> None:
        """Refuses a store that cannot be combined with another."""
        mine = self.header.model_copy(update={"rows": other.rows, "tokens": other.tokens})
        if mine != other:
            told = [
                f"model {each.model[:12]}, size {each.size}, budget {each.budget}" for each in (mine, other)
            ]
            raise MismatchError(
                f"{LATE_HEADER}: token vectors of {told[0]} and of {told[1]} cannot be one store; build the index again"
            )

    @classmethod
    def open(
        cls,
        folder: Path,
        rows: int | None = None,  # expected number of rows; None: that of the header
    ) -> "LateTokens":
        """Opens a store with verified checksums; arrays are memory-mapped."""
        header = read_header(folder / LATE_HEADER, LateHeader)
        if rows is not None and header.rows != rows:
            raise _damaged(folder, LATE_HEADER, f"it counts {header.rows} rows, the index has {rows}")
        starts = map_array(folder / STARTS_FILE, np.int64, header.rows + 1)
        lengths = np.diff(starts)
        if (
            starts[0] != 0
            or starts[-1] != header.tokens
            or (lengths < 1).any()
            or int(lengths.max(initial=1)) > header.budget
        ):
            raise _damaged(folder, STARTS_FILE, f"it does not cut {header.tokens} tokens into rows")
        codes = map_matrix(folder / CODES_FILE, np.uint8, header.tokens)
        if codes.shape[1] != header.size // 8:
            raise _damaged(
                folder, CODES_FILE, f"it holds {codes.shape[1]} bytes a token, expected {header.size // 8}"
            )
        places = map_array(folder / PLACES_FILE, np.uint16, header.tokens)
        return cls(header, starts, codes, places)


def _damaged(folder: Path, name: str, what: str) -> FormatError:
    return FormatError(f"{folder.name}/{name} is damaged: {what}; rebuild the index")
