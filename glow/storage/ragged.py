"""Rows of different lengths, stored one after another in a file: writing them, and finding the items of some rows.

n   rows        t   items of all rows
"""

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["ArrayWriter", "places_of"]

_HEADER_BYTES = 128
"""Size of numpy's header: the length is known only at the end, so it has space for any."""


class ArrayWriter:
    """A `.npy` file that is written piece by piece; nothing is held in memory, and an unfinished file cannot be opened.

    Args:
        path: of the file.
        kind: dtype of its values.
        width: values of an item; None: an item is one value, and the array has one dimension.

    Attributes:
        length: items that were added.
    """

    def __init__(self, path: Path, kind: DTypeLike, width: int | None = None) -> None:
        self._kind, self._shape = np.dtype(kind), () if width is None else (width,)
        self._file = path.open("wb")
        self._file.write(b"\0" * _HEADER_BYTES)
        self.length = 0

    def add(self, items: NDArray[np.generic]) -> None:
        """Adds items, [m] or [m, width], of the file's dtype.

        Raises:
            ValueError: if they are of another dtype or width.
        """
        if items.dtype != self._kind or items.shape[1:] != self._shape:
            raise ValueError(
                f"found {items.dtype} {list(items.shape)}, expected {self._kind} {['m', *self._shape]}"
            )
        self._file.write(items.tobytes())
        self.length += len(items)

    def end(self) -> None:
        """Completes the file: writes numpy's header before the items."""
        self._file.seek(0)
        form = {
            "descr": np.lib.format.dtype_to_descr(self._kind),
            "fortran_order": False,
            "shape": (self.length, *self._shape),
        }
        np.lib.format.write_array_header_1_0(self._file, form)
        if self._file.tell() != _HEADER_BYTES:
            raise ValueError(f"numpy's header takes {self._file.tell()} bytes, expected {_HEADER_BYTES}")
        self.close()

    def close(self) -> None:
        """Closes the file, complete or not."""
        self._file.close()


def places_of(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of all items of some rows, in the order of the rows.

    Args:
        offsets: int64 [n + 1], where each row begins, and t.
        rows: int64 [m], each in 0 to n - 1; a row may appear twice.
    """
    lengths = offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    starts = offsets[rows] - (ends - lengths)
    return np.repeat(starts, lengths) + np.arange(ends[-1] if len(ends) else 0)
