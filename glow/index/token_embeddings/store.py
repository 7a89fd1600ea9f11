"""The store of token embeddings: memory-mapped codes of every document's tokens.

n   documents       t   all tokens       e   numbers per token
B   requested documents     L   the longest of them, in tokens
"""

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError, MismatchError
from glow.index.token_embeddings.codes import CodedStates, StateBits, code_bytes
from glow.index.token_embeddings.format import (
    CODES_FILE,
    OFFSETS_FILE,
    SCALES_FILE,
    STATES_HEADER,
    StatesHeader,
)
from glow.storage import ArrayWriter, map_array, places_of, read_header

__all__ = ["TokenEmbeddingStore", "TokenEmbeddingsWriter"]


class TokenEmbeddingsWriter:
    """Writes a store document by document; only the documents of one call are held in memory.

    Args:
        folder: to create; it must not exist.
        header: of the store; its counts are set at the end.
    """

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
        """Adds documents, in the order of rows.

        Raises:
            ValueError: if a document has more tokens than `document_tokens`, or none.
        """
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
    """An open store; safe to read from many threads.

    Args:
        header: of the store.
        offsets: int64 [n + 1], start of each document's tokens.
        codes: uint8 [t, b].
        scales: float16 [t]; [0] with 16 bits.
    """

    def __init__(
        self,
        header: StatesHeader,
        offsets: NDArray[np.int64],
        codes: NDArray[np.uint8],
        scales: NDArray[np.float16],
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
        scales = self._scales[tokens] if self.header.bits != 16 else np.empty(0, np.float16)
        return CodedStates(self.lengths(rows), self._codes.take(tokens, axis=0), scales)

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token embeddings and mask of documents, padded at the end.

        Args:
            rows: int64 [B], at least one, each in 0 to n - 1.

        Returns:
            float32 [B, L, e], 0 on padding, and int64 [B, L], 1 for tokens.
        """
        return self.coded(rows).states(self.header.size, self.header.bits)

    def require_model(self, digest: str) -> None:
        """Refuses a re-ranker that did not compute these token embeddings.

        Raises:
            MismatchError: with both hashes.
        """
        if self.header.model != digest:
            raise MismatchError(
                f"the term representations were made by re-ranker {self.header.model[:12]}, found {digest[:12]}; "
                "build the index with the re-ranker that is to use them"
            )

    def require_like(self, other: StatesHeader) -> None:
        """Refuses a store that cannot be combined with another.

        Raises:
            MismatchError: if re-ranker or bits differ.
        """
        self.require_model(other.model)
        if self.header.bits != other.bits:
            raise MismatchError(
                f"term representations of {self.header.bits} and of {other.bits} bits cannot be one store; build the index again"
            )

    @classmethod
    def open(cls, folder: Path, documents: int | None = None) -> "TokenEmbeddingStore":
        """Opens a store with verified checksums; codes are memory-mapped.

        Args:
            folder: directory with `STATES_FILES`.
            documents: expected number; None: that of the header.

        Raises:
            FormatError: if a file is missing, truncated, of another format, or inconsistent with the others; the message names it.
        """
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
        bits: StateBits = header.bits
        width = code_bytes(header.size, bits)
        codes = map_array(folder / CODES_FILE, np.uint8, header.tokens * width).reshape(-1, width)
        scales = map_array(folder / SCALES_FILE, np.float16, 0 if bits == 16 else header.tokens)
        if not np.isfinite(scales).all() or (scales < 0).any():
            raise _damaged(folder, SCALES_FILE, "it holds a scale that is not finite and at least 0")
        return cls(header, offsets, codes, scales)


def _damaged(folder: Path, name: str, what: str) -> FormatError:
    return FormatError(f"{folder.name}/{name} is damaged: {what}; rebuild the index")
