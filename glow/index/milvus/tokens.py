"""Token embeddings in a collection: the codes of a row's tokens, and then what else each token has.

m   requested rows      t   their tokens      P   dimensions of a token     b   bytes of a token's codes
"""

import numpy as np
from numpy.typing import NDArray

from glow.index.late_interaction import CodedTokens, LateHeader, LateTokens
from glow.index.milvus.collection import Collection
from glow.index.milvus.encoded import decode, encode
from glow.index.token_embeddings import CodedStates, StatesHeader, TokenEmbeddingStore, code_bytes

__all__ = ["LATE_FIELD", "STATES_FIELD", "MilvusLate", "MilvusStates", "token_values"]

LATE_FIELD, STATES_FIELD = "late", "states"
Rest = NDArray[np.uint16] | NDArray[np.float16]


def token_values(lengths: NDArray[np.int64], codes: NDArray[np.uint8], rest: Rest) -> list[list[str]]:
    """The values of rows.

    Args:
        lengths: int64 [m].
        codes: uint8 [t, b].
        rest: positions or scales, [t]; [0] if there are none.
    """
    ends = np.cumsum(lengths).tolist()
    return [
        encode(codes[stop - size : stop].tobytes() + rest[stop - size : stop].tobytes())
        for stop, size in zip(ends, lengths.tolist(), strict=True)
    ]


def _read(
    collection: Collection, rows: NDArray[np.int64], field: str, width: int, rest_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], bytes]:
    """Lengths, codes and rest of rows."""
    blobs = [decode(each[field]) for each in collection.read(rows.tolist(), (field,), caches=True)]
    lengths = [len(blob) // (width + rest_bytes) for blob in blobs]
    codes = b"".join(blob[: size * width] for blob, size in zip(blobs, lengths, strict=True))
    rest = b"".join(blob[size * width :] for blob, size in zip(blobs, lengths, strict=True))
    return np.array(lengths, np.int64), np.frombuffer(codes, np.uint8).reshape(-1, width), rest


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
        lengths, codes, rest = _read(self._collection, rows, LATE_FIELD, self.header.size // 8, 2)
        return CodedTokens(lengths, codes, np.frombuffer(rest, np.uint16))

    def require_like(self, other: LateHeader) -> None:
        """Refuses a store that cannot be combined with another; as `LateTokens.require_like`."""
        empty = np.empty(0, np.uint8)
        LateTokens(self.header, np.zeros(1, np.int64), empty, np.empty(0, np.uint16)).require_like(other)


class MilvusStates:
    """Arguments and results as for `TokenEmbeddingStore`; arguments of the constructor as for `MilvusLate`."""

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
        header, width = self.header, code_bytes(self.header.size, self.header.bits)
        scale_bytes = 0 if header.bits == 16 else 2
        lengths, codes, rest = _read(self._collection, rows, STATES_FIELD, width, scale_bytes)
        return CodedStates(lengths, codes, np.frombuffer(rest, np.float16))

    def require_like(self, other: StatesHeader) -> None:
        """Refuses a store that cannot be combined with another; as `TokenEmbeddingStore.require_like`."""
        empty, none = np.empty((0, 0), np.uint8), np.zeros(1, np.int64)
        TokenEmbeddingStore(self.header, none, empty, np.empty(0, np.float16)).require_like(other)
