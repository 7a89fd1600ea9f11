"""What components make of documents in the one pass of the document tower, and how it is kept until they are written.

b   texts of a batch        D   dimensions      L   tokens      K   numbers of a token
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
    """Vectors that are read block by block: an array, or what reads them from files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(count, D)."""
        ...

    def __getitem__(self, wanted: Any, /) -> NDArray[np.float32]:
        """Rows of a slice without step, float32 [m, D], or of row numbers, int64 [...], float32 [..., D]."""
        ...


class Texts(NamedTuple):
    """Documents or passages that the document tower has read.

    Attributes:
        texts, sequences: the texts, and their tokens; b of each.
        vectors: float32 [b, D], L2-normalised.
        outputs: name of an output of the tower -> float32 [b, L, K]; at least each output that an encoder of the build reads.
    """

    texts: Sequence[Document]
    sequences: Sequence[WeightedTokens]
    vectors: NDArray[np.float32]
    outputs: Mapping[str, NDArray[np.float32]]


class Records(NamedTuple):
    """What a component stores of texts.

    Attributes:
        records: of the component's dtype, one text's after another's, [sum of counts].
        counts: int64 [b], how many each text has.
    """

    records: NDArray[Any]
    counts: NDArray[np.int64]


class RowEncoder(Protocol):
    """Makes records; opened where texts are encoded (thread, process, Ray), used by many threads.

    Attributes:
        reads: outputs of the document tower, beside the vector, of which it is given one batch at a time; empty: it is given some hundred
            texts at a time, and no outputs.
    """

    reads: tuple[str, ...]

    def encode(self, batch: Texts) -> Records:
        """Records of texts, in their order.

        Raises:
            ValueError: if a number is not finite, so that the model is broken or a document poisonous.
        """
        ...


class EncodeJob(Protocol):
    """What makes an encoder; small, can be pickled, names files by absolute path.

    Attributes:
        dtype: of a record.
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a record."""
        ...

    def open(self, model: Model, terms: TermTable, device: Device) -> RowEncoder:
        """Opens it.

        Args:
            model: that encodes.
            terms: the index's table.
            device: where the tower runs.

        Raises:
            ArtifactError: if a file is gone or damaged.
            DeviceError: if the device is not there.
        """
        ...


class Encoded(Protocol):
    """What came of encoding all texts, read from the files that hold it."""

    def records(self, component: str) -> Iterator[Records]:
        """A component's records, some rows at a time, in the order of rows."""
        ...

    def vectors(self) -> VectorRows:
        """The vectors of all, float32 [v, D]; read in blocks, held nowhere."""
        ...
