"""The store of token embeddings: memory-mapped codes of every document's tokens, 4 bits per number and a scale for each token.

Source: PreTTR section 4.2 stores 16 bits; 4 are GLOW's. The numbers are outputs of a GELU, which has a minimum, and codes
count from there: x ≈ LEAST + code · scale.

n   documents       t   all tokens       e   numbers per token      b   bytes of a token's codes
B   requested documents     L   the longest of them, in tokens
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import FormatError, MismatchError
from glow.options import StrictModel
from glow.storage import ArrayWriter, map_array, places_of, read_header

BITS: Final = 4
LEAST = np.float32(-0.17)
"""GELU's minimum, -0.16997, rounded down."""
_LEVELS = (1 << BITS) - 1


def code_bytes(size: int) -> int:
    """b: bytes of a token's codes, without its scale of 2 bytes; two codes share a byte."""
    return (size + 1) // 2


def encode_states(states: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """Codes, uint8 [t, b], and scales, float16 [t], of tokens, float32 [t, e]; decoded numbers are within half a scale.

    Refuses numbers that are not finite, below LEAST, or do not fit into 16 bits.
    """
    if not np.isfinite(states).all() or (np.abs(states) > np.finfo(np.float16).max).any():
        raise ValueError("term representations must be finite and fit into 16 bits")
    if (states < LEAST).any():
        raise ValueError(
            f"term representations must be at least {LEAST:.2f}, as a compressor's GELU leaves them"
        )
    exact = (states.max(1, initial=float(LEAST)) - LEAST) / _LEVELS
    # Rounded up, so that the largest number also has a code.
    scales = np.nextafter(exact.astype(np.float16), np.float16(np.inf))
    codes = np.rint((states - LEAST) / scales[:, None].astype(np.float32)).clip(0, _LEVELS).astype(np.uint8)
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, 0::2] | (even[:, 1::2] << 4), scales


def decode_states(codes: NDArray[np.uint8], scales: NDArray[np.float16], size: int) -> NDArray[np.float32]:
    """Decoded numbers, float32 [t, e]; arguments as returned by `encode_states`, `size` is e."""
    wide = np.empty((len(codes), 2 * codes.shape[1]), np.uint8)
    wide[:, 0::2], wide[:, 1::2] = codes & 15, codes >> 4
    decoded: NDArray[np.float32] = wide[:, :size].astype(np.float32)
    decoded *= scales[:, None].astype(np.float32)
    decoded += LEAST
    return decoded


class CodedStates(NamedTuple):
    """Documents in their stored form."""

    lengths: NDArray[np.int64]  # [B], number of tokens of each
    codes: NDArray[np.uint8]  # [t, b], one document after another
    scales: NDArray[np.float16]  # [t]

    @classmethod
    def of(cls, documents: Sequence[NDArray[np.float32]]) -> "CodedStates":
        """Codes of documents' token embeddings, float32 [L, e] each, at least one document; raises as `encode_states`."""
        lengths = np.array([len(states) for states in documents], np.int64)
        return cls(lengths, *encode_states(np.concatenate(documents)))

    def states(self, size: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Decoded numbers: float32 [B, L, e], 0 on padding at the end, and mask int64 [B, L], 1 for tokens."""
        mask = np.arange(int(self.lengths.max())) < self.lengths[:, None]
        states = np.zeros((*mask.shape, size), np.float32)
        states[mask] = decode_states(self.codes, self.scales, size)
        return states, mask.astype(np.int64)


FORMAT_VERSION: Literal[1] = 1
STATES_FOLDER = "states"
STATES_HEADER = "states.json"
OFFSETS_FILE, CODES_FILE, SCALES_FILE = "offsets.npy", "codes.npy", "scales.npy"
STATES_FILES = (STATES_HEADER, OFFSETS_FILE, CODES_FILE, SCALES_FILE)


class StatesHeader(StrictModel):
    """`states.json` (row 31 of docs/papers.md)."""

    format: Literal[1] = FORMAT_VERSION  # format version
    model: str = Field(min_length=1)  # hash of the re-ranker that computed them; only it can use them
    split: int = Field(ge=1)  # l, number of its layers apart
    size: int = Field(ge=1)  # e, numbers per token
    bits: Literal[4] = BITS  # per number
    position_start: int = Field(ge=1)  # first position of documents
    document_tokens: int = Field(ge=1)  # longest document
    documents: int = Field(ge=0, le=2**32 - 1)  # documents, tokens: n and t
    tokens: int = Field(ge=0)


class TokenEmbeddingsWriter:
    """Writes a store document by document; only the documents of one call are held in memory."""

    def __init__(self, folder: Path, header: StatesHeader) -> None:
        folder.mkdir(parents=True)
        self._folder, self._header = folder, header
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._codes = ArrayWriter(folder / CODES_FILE, np.uint8)
        self._scales = ArrayWriter(folder / SCALES_FILE, np.float16)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._codes.close()
        self._scales.close()

    def add(self, coded: CodedStates) -> None:
        """Adds documents, in the order of rows."""
        if ((coded.lengths < 1) | (coded.lengths > self._header.document_tokens)).any():
            raise ValueError(
                f"documents of {coded.lengths.min()} to {coded.lengths.max()} tokens, expected 1 to {self._header.document_tokens}"
            )
        self._codes.add(coded.codes.reshape(-1))
        self._scales.add(coded.scales)
        self._ends.append(self._ends[-1][-1] + np.cumsum(coded.lengths))

    def close(self) -> StatesHeader:
        """Finishes the files; returns the header as written."""
        header, offsets = self._header, np.concatenate(self._ends)
        tokens = int(offsets[-1])
        self._codes.end()
        self._scales.end()
        np.save(self._folder / OFFSETS_FILE, offsets.astype(np.int64), allow_pickle=False)
        written = header.model_copy(update={"documents": len(offsets) - 1, "tokens": tokens})
        written.save(self._folder / STATES_HEADER)
        return written


class TokenEmbeddingStore:
    """An open store; safe to read from many threads."""

    def __init__(
        self,
        header: StatesHeader,  # of the store
        offsets: NDArray[np.int64],  # int64 [n + 1], start of each document's tokens
        codes: NDArray[np.uint8],  # uint8 [t, b]
        scales: NDArray[np.float16],  # float16 [t]
    ) -> None:
        self.header = header
        self._offsets, self._codes, self._scales = offsets, codes, scales

    def __len__(self) -> int:
        return self.header.documents

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of documents, int64 [B]."""
        lengths: NDArray[np.int64] = self._offsets[rows + 1] - self._offsets[rows]
        return lengths

    def coded(self, rows: NDArray[np.int64]) -> CodedStates:
        """Documents in their stored form."""
        tokens = places_of(self._offsets, rows)
        return CodedStates(self.lengths(rows), self._codes.take(tokens, axis=0), self._scales[tokens])

    def read(
        self,
        rows: NDArray[np.int64],  # int64 [B], at least one, each in 0 to n - 1
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token embeddings and mask of documents, padded at the end.

        Returns float32 [B, L, e], 0 on padding, and int64 [B, L], 1 for tokens.
        """
        return self.coded(rows).states(self.header.size)

    def require_model(self, digest: str) -> None:
        """Refuses a re-ranker that did not compute these token embeddings."""
        if self.header.model != digest:
            raise MismatchError(
                f"the term representations were made by re-ranker {self.header.model[:12]}, found {digest[:12]}; "
                "build the index with the re-ranker that is to use them"
            )

    @classmethod
    def open(
        cls,
        folder: Path,
        documents: int | None = None,  # expected number; None: that of the header
    ) -> "TokenEmbeddingStore":
        """Opens a store with verified checksums; codes are memory-mapped."""
        header = read_header(folder / STATES_HEADER, StatesHeader)
        if documents is not None and header.documents != documents:
            raise _damaged(
                folder, STATES_HEADER, f"it counts {header.documents} documents, the index has {documents}"
            )
        offsets = map_array(folder / OFFSETS_FILE, np.int64, header.documents + 1)
        lengths = np.diff(offsets)
        longest = int(lengths.max(initial=1))
        if (
            offsets[0] != 0
            or offsets[-1] != header.tokens
            or (lengths < 1).any()
            or longest > header.document_tokens
        ):
            raise _damaged(folder, OFFSETS_FILE, f"it does not cut {header.tokens} tokens into documents")
        width = code_bytes(header.size)
        codes = map_array(folder / CODES_FILE, np.uint8, header.tokens * width).reshape(-1, width)
        scales = map_array(folder / SCALES_FILE, np.float16, header.tokens)
        if not np.isfinite(scales).all() or (scales < 0).any():
            raise _damaged(folder, SCALES_FILE, "it holds a scale that is not finite and at least 0")
        return cls(header, offsets, codes, scales)


def _damaged(folder: Path, name: str, what: str) -> FormatError:
    return FormatError(f"{folder.name}/{name} is damaged: {what}; rebuild the index")
