"""Encoding of documents for components, in one pass of the document tower, and storage of the results.

b   texts of a batch        D   dimensions      L   tokens      K   dimensions of a token's output
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.records import Document
from glow.runtime import Device, Model
from glow.text import TermTable, WeightedTokens

__all__ = ["EncodeJob", "Encoded", "Records", "RowEncoder", "Texts", "VectorRows"]


class VectorRows(Protocol):
    """Vectors that can be read in blocks: an array, or a reader of files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(count, D)."""
        ...

    def __getitem__(self, wanted: Any, /) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        ...


class Texts(NamedTuple):
    """Documents or passages with the document tower's outputs.

    Attributes:
        texts, sequences: b texts, and their tokens.
        vectors: float32 [b, D], L2-normalized.
        outputs: name of an output of the tower -> float32 [b, L, K]; at least each output that an encoder of the build reads.
    """

    texts: Sequence[Document]
    sequences: Sequence[WeightedTokens]
    vectors: NDArray[np.float32]
    outputs: Mapping[str, NDArray[np.float32]]


class Records(NamedTuple):
    """Stored records of a component for some texts.

    Attributes:
        records: of the component's dtype, of one text after another, [sum of counts].
        counts: int64 [b], number of records of each text.
    """

    records: NDArray[Any]
    counts: NDArray[np.int64]


class RowEncoder(Protocol):
    """Makes records; opened where texts are encoded (thread, process, Ray), used by many threads.

    Attributes:
        reads: outputs of the document tower besides the vector; the encoder then gets one batch at a time. If empty, it gets
            some hundred texts at a time, without outputs.
    """

    reads: tuple[str, ...]

    def encode(self, batch: Texts) -> Records:
        """Makes the records of texts, in their order.

        Raises:
            ValueError: if a number is not finite, because the model or a document is broken.
        """
        ...


class EncodeJob(Protocol):
    """Opens an encoder; small, can be pickled, names files by absolute path.

    Attributes:
        dtype: of a record.
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a record."""
        ...

    def open(self, model: Model, terms: TermTable, device: Device) -> RowEncoder:
        """Opens the encoder.

        Args:
            model: encodes the documents.
            terms: the index's term statistics.
            device: of the tower.

        Raises:
            ArtifactError: if a file is missing or damaged.
            DeviceError: if the device is missing.
        """
        ...


class Encoded(Protocol):
    """Results of encoding all texts, read from files."""

    def records(self, component: str) -> Iterator[Records]:
        """A component's records in blocks, in the order of rows."""
        ...

    def vectors(self) -> VectorRows:
        """All vectors, float32 [v, D]; read in blocks, not kept in memory."""
        ...
