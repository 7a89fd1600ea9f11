"""Token embeddings in a collection: the stored bytes of each row, from which a small local store is made for each call.

m   requested rows      P   dimensions of a token     b   bytes of a token's codes
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.late_interaction import CodedTokens, LateHeader, LateTokens
from glow.index.milvus.collection import Collection
from glow.index.milvus.encoded import decode, encode
from glow.index.token_embeddings import CodedStates, StatesHeader, TokenEmbeddingStore, code_bytes

__all__ = ["LATE_FIELD", "STATES_FIELD", "MilvusLate", "MilvusStates", "late_values", "states_values"]

LATE_FIELD, STATES_FIELD = "late", "states"


def late_values(coded: CodedTokens) -> list[list[str]]:
    """The values of rows: signs of all tokens, then their positions."""
    ends = np.cumsum(coded.lengths).tolist()
    return [
        encode(coded.codes[stop - size : stop].tobytes() + coded.places[stop - size : stop].tobytes())
        for stop, size in zip(ends, coded.lengths.tolist(), strict=True)
    ]


def states_values(coded: CodedStates) -> list[list[str]]:
    """The values of rows: codes of all tokens, then their scales."""
    ends = np.cumsum(coded.lengths).tolist()
    return [
        encode(coded.codes[stop - size : stop].tobytes() + coded.scales[stop - size : stop].tobytes())
        for stop, size in zip(ends, coded.lengths.tolist(), strict=True)
    ]


class MilvusLate:
    """Arguments and results as for `LateTokens`.

    Args:
        collection: of the rows.
        header: of the store; its file stays in the version's directory.
    """

    def __init__(self, collection: Collection, header: LateHeader) -> None:
        self._collection, self.header = collection, header

    def __len__(self) -> int:
        return self.header.rows

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        return self.coded(rows).lengths

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The codes of rows, and the start of each row."""
        coded = self.coded(rows)
        return coded.codes, np.cumsum(coded.lengths) - coded.lengths

    def places(self, row: int) -> NDArray[np.uint16]:
        """Positions of the tokens that a row's codes represent, uint16 [tokens of the row]."""
        return self.coded(np.array([row], np.int64)).places

    def coded(self, rows: NDArray[np.int64]) -> CodedTokens:
        """Rows in their stored form."""
        width = self.header.size // 8
        blobs = _blobs(self._collection, rows, LATE_FIELD)
        lengths = [len(blob) // (width + 2) for blob in blobs]
        codes = b"".join(blob[: size * width] for blob, size in zip(blobs, lengths, strict=True))
        places = b"".join(blob[size * width :] for blob, size in zip(blobs, lengths, strict=True))
        return CodedTokens(
            np.array(lengths, np.int64),
            np.frombuffer(codes, np.uint8).reshape(-1, width),
            np.frombuffer(places, np.uint16),
        )

    def require_like(self, other: LateHeader) -> None:
        """Refuses a store that cannot be combined with another; as `LateTokens.require_like`."""
        empty = np.empty(0, np.uint8)
        LateTokens(self.header, np.zeros(1, np.int64), empty, np.empty(0, np.uint16)).require_like(other)


class MilvusStates:
    """Arguments and results as for `TokenEmbeddingStore`.

    Args:
        collection, header: as for `MilvusLate`.
    """

    def __init__(self, collection: Collection, header: StatesHeader) -> None:
        self._collection, self.header = collection, header

    def __len__(self) -> int:
        return self.header.documents

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        return self.coded(rows).lengths

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token embeddings and mask of rows, padded at the end."""
        return self.coded(rows).states(self.header.size, self.header.bits)

    def coded(self, rows: NDArray[np.int64]) -> CodedStates:
        """Rows in their stored form."""
        header = self.header
        width, scale = code_bytes(header.size, header.bits), 0 if header.bits == 16 else 2
        blobs = _blobs(self._collection, rows, STATES_FIELD)
        lengths = [len(blob) // (width + scale) for blob in blobs]
        codes = b"".join(blob[: size * width] for blob, size in zip(blobs, lengths, strict=True))
        scales = b"".join(blob[size * width :] for blob, size in zip(blobs, lengths, strict=True))
        return CodedStates(
            np.array(lengths, np.int64),
            np.frombuffer(codes, np.uint8).reshape(-1, width),
            np.frombuffer(scales, np.float16),
        )

    def require_like(self, other: StatesHeader) -> None:
        """Refuses a store that cannot be combined with another; as `TokenEmbeddingStore.require_like`."""
        empty, none = np.empty((0, 0), np.uint8), np.zeros(1, np.int64)
        TokenEmbeddingStore(self.header, none, empty, np.empty(0, np.float16)).require_like(other)


def _blobs(collection: Collection, rows: NDArray[np.int64], field: str) -> Sequence[bytes]:
    return [decode(each[field]) for each in collection.read(rows.tolist(), (field,), caches=True)]
