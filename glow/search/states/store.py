"""The store of term representations: memory-mapped codes of every document's tokens.

n   documents       t   tokens of all       e   numbers of a token
B   documents asked for     L   the longest of them, in tokens
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError, MismatchError
from glow.search.states.codes import StateBits, code_bytes, decode_states, encode_states
from glow.search.states.format import CODES_FILE, OFFSETS_FILE, SCALES_FILE, STATES_HEADER, StatesHeader
from glow.storage import map_array, read_header

__all__ = ["TermStates", "write_states"]

# numpy's header of a one-dimensional array whose length is known at the end alone: room for any.
_HEADER_BYTES = 128


def write_states(
    folder: Path, header: StatesHeader, documents: Iterable[NDArray[np.float32]]
) -> StatesHeader:
    """Writes a store, document after document; no more than one of them is held in memory.

    Args:
        folder: to be made; it must not exist.
        header: of the store; its counts are filled in.
        documents: float32 [L, e] of each, in the order of rows, L >= 1.

    Returns:
        The header as written.

    Raises:
        ValueError: if a document has another e, more tokens than `document_tokens`, none, or numbers that are no GELU's.
        OSError: if it cannot be written.
    """
    folder.mkdir(parents=True)
    offsets = [0]
    with (folder / CODES_FILE).open("wb") as codes, (folder / SCALES_FILE).open("wb") as scales:
        codes.write(b"\0" * _HEADER_BYTES)
        scales.write(b"\0" * _HEADER_BYTES)
        for row, states in enumerate(documents):
            if (
                states.ndim != 2
                or states.shape[1] != header.size
                or not 0 < len(states) <= header.document_tokens
            ):
                raise ValueError(
                    f"document {row} has states of shape {states.shape}, expected 1 to {header.document_tokens} tokens of "
                    f"{header.size}"
                )
            coded, scaled = encode_states(states, header.bits)
            codes.write(coded.tobytes())
            scales.write(scaled.tobytes())
            offsets.append(offsets[-1] + len(states))
        _close(codes, np.uint8, offsets[-1] * code_bytes(header.size, header.bits))
        _close(scales, np.float16, 0 if header.bits == 16 else offsets[-1])
    np.save(folder / OFFSETS_FILE, np.array(offsets, np.int64), allow_pickle=False)
    written = header.model_copy(update={"documents": len(offsets) - 1, "tokens": offsets[-1]})
    written.save(folder / STATES_HEADER)
    return written


def _close(file: BinaryIO, kind: type[np.generic], length: int) -> None:
    """Puts numpy's header before what was written."""
    file.seek(0)
    form = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, form)
    if file.tell() != _HEADER_BYTES:
        raise ValueError(f"numpy's header takes {file.tell()} bytes, expected {_HEADER_BYTES}")


class TermStates:
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

    def lengths(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Tokens of documents, int64 [B]."""
        at = np.asarray(rows, np.int64)
        lengths: NDArray[np.int64] = self._offsets[at + 1] - self._offsets[at]
        return lengths

    def read(self, rows: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """States and mask of documents, padded at the end.

        Args:
            rows: at least one, each in 0 to n - 1.

        Returns:
            float32 [B, L, e], 0 on padding, and int64 [B, L], 1 for tokens.
        """
        lengths, size, bits = self.lengths(rows), self.header.size, self.header.bits
        shape = (len(lengths), int(lengths.max()))
        mask = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
        starts = self._offsets[np.asarray(rows, np.int64)]
        tokens = np.concatenate(
            [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        )
        scales = self._scales[tokens] if bits != 16 else self._scales
        states = np.zeros((*shape, size), np.float32)
        states[mask.astype(bool)] = decode_states(self._codes[tokens], scales, size, bits)
        return states, mask

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

    @classmethod
    def open(cls, folder: Path, documents: int | None = None) -> "TermStates":
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
