"""The store of term representations: memory-mapped codes of every document's tokens.

n   documents       t   tokens of all       e   numbers of a token
B   documents asked for     L   the longest of them, in tokens
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
    """A store in the making, document after document; no more than what is added at once is held in memory.

    Args:
        folder: to be made; it must not exist.
        header: of the store; its counts are filled in.
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
        """Ends the files; returns the header as written."""
        header, offsets = self._header, np.concatenate(self._ends)
        tokens = int(offsets[-1])
        self._codes.end()
        self._scales.end()
        np.save(self._folder / OFFSETS_FILE, offsets.astype(np.int64), allow_pickle=False)
        written = header.model_copy(update={"documents": len(offsets) - 1, "tokens": tokens})
        written.save(self._folder / STATES_HEADER)
        return written


class TokenEmbeddingStore:
    """A store, open; safe to read from many threads.

    Args:
        header: what it holds.
        offsets: int64 [n + 1], where each document's tokens begin.
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
        """Tokens of documents, int64 [B]."""
        lengths: NDArray[np.int64] = self._offsets[rows + 1] - self._offsets[rows]
        return lengths

    def coded(self, rows: NDArray[np.int64]) -> CodedStates:
        """Documents as they are stored."""
        tokens = places_of(self._offsets, rows)
        scales = self._scales[tokens] if self.header.bits != 16 else np.empty(0, np.float16)
        return CodedStates(self.lengths(rows), self._codes[tokens], scales)

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """States and mask of documents, padded at the end.

        Args:
            rows: int64 [B], at least one, each in 0 to n - 1.

        Returns:
            float32 [B, L, e], 0 on padding, and int64 [B, L], 1 for tokens.
        """
        return self.coded(rows).states(self.header.size, self.header.bits)

    def require_model(self, digest: str) -> None:
        """Refuses a re-ranker that did not make these states.

        Raises:
            MismatchError: with both hashes.
        """
        if self.header.model != digest:
            raise MismatchError(
                f"the term representations were made by re-ranker {self.header.model[:12]}, found {digest[:12]}; "
                "build the index with the one that is to read them"
            )

    def require_like(self, other: StatesHeader) -> None:
        """Refuses a store that cannot stand beside another.

        Raises:
            MismatchError: if it was made by another re-ranker, or holds numbers of other bits.
        """
        self.require_model(other.model)
        if self.header.bits != other.bits:
            raise MismatchError(
                f"term representations of {self.header.bits} and of {other.bits} bits cannot be one store; build the index again"
            )

    @classmethod
    def open(cls, folder: Path, documents: int | None = None) -> "TokenEmbeddingStore":
        """Opens a store whose checksums were verified before; codes are memory-mapped.

        Args:
            folder: holds `STATES_FILES`.
            documents: how many it must hold; None: what it says.

        Raises:
            FormatError: if a file is missing, cut off, of another format, or does not fit the others; it is named.
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
