"""The file formats that every index component uses: headers, arrays, rows of different lengths, sorted strings, lines.

Each file is checked strictly, once. Arrays are memory-mapped.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import ValidationError

from glow.errors import FormatError
from glow.options import StrictModel, describe

H = TypeVar("H", bound=StrictModel)


def read_header(path: Path, kind: type[H], advice: str = "rebuild the index") -> H:
    """Reads a header."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise FormatError(f"cannot read {_name(path)}: {error.strerror}; {advice}") from error
    except ValidationError as error:
        known = " or ".join(map(str, get_args(kind.model_fields["format"].annotation)))
        raise FormatError(f"{_name(path)} is not of format {known}: {describe(error)}; {advice}") from error


def map_array(path: Path, kind: DTypeLike, length: int | None) -> NDArray[Any]:
    """Opens a one-dimensional array of a known type and length without reading its values."""
    array = _load(path, is_empty=length == 0)
    expected = f"{np.dtype(kind)} [{'n' if length is None else length}]"
    if array.dtype != np.dtype(kind) or array.ndim != 1 or length not in (None, len(array)):
        raise _other(path, array, expected)
    return array.view(np.ndarray)  # slicing numpy's memmap takes ten times as long


def map_matrix(path: Path, kind: DTypeLike, rows: int) -> NDArray[Any]:
    """As `map_array`, for two dimensions, the first of which is known."""
    array = _load(path, is_empty=rows == 0)
    if array.dtype != np.dtype(kind) or array.ndim != 2 or len(array) != rows:
        raise _other(path, array, f"{np.dtype(kind)} [{rows}, n]")
    return array.view(np.ndarray)


def _load(path: Path, *, is_empty: bool) -> NDArray[Any]:
    try:
        # An empty array cannot be mapped.
        array: Any = np.load(path, mmap_mode=None if is_empty else "r", allow_pickle=False)
    except Exception as error:  # for a damaged header numpy raises almost any exception
        raise FormatError(f"cannot read {_name(path)}: {error!r:.200}; rebuild the index") from error
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{_name(path)} does not hold an array; rebuild the index")
    return array


def _other(path: Path, array: NDArray[Any], expected: str) -> FormatError:
    form = f"{array.dtype} {list(array.shape)}"
    return FormatError(f"{_name(path)} holds {form:.200}, expected {expected}; rebuild the index")


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Opens a file of plain bytes, uint8 [size]."""
    try:
        # An empty file cannot be mapped.
        size = path.stat().st_size
        return np.memmap(path, np.uint8, "r").view(np.ndarray) if size else np.empty(0, np.uint8)
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read {_name(path)}: {error}; rebuild the index") from error


def new_array(path: Path, kind: DTypeLike, length: int) -> NDArray[Any]:
    """Creates a `.npy` file of zeros, mapped for writing in any order; an empty array is in memory only."""
    if length == 0:  # an empty file cannot be mapped
        np.save(path, np.empty(0, kind), allow_pickle=False)
        return np.empty(0, kind)
    array: NDArray[Any] = np.lib.format.open_memmap(path, "w+", kind, (length,))
    allocate(path, 0, path.stat().st_size)
    return array


def allocate(path: Path, start: int, size_bytes: int) -> None:
    """Reserves disk space for bytes to be written through a map: a full disk would otherwise kill the process at a write."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), start, size_bytes)


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


_HEADER_BYTES = 128
"""Size of numpy's header: the length is known only at the end, so it has space for any."""


class ArrayWriter:
    """A `.npy` file that is written piece by piece; nothing is held in memory, and an unfinished file cannot be opened."""

    def __init__(self, path: Path, kind: DTypeLike, width: int | None = None) -> None:
        # `width` is the number of values of an item; None: an item is one value, and the array has one dimension
        self._kind, self._shape = np.dtype(kind), () if width is None else (width,)
        self._file = path.open("wb")
        self._file.write(b"\0" * _HEADER_BYTES)
        self.length = 0

    def add(self, items: NDArray[np.generic]) -> None:
        """Adds items, [m] or [m, width], of the file's dtype."""
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
        self._file.close()


def places_of(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of all items of some rows int64 [m], in their order; row r has those from `offsets[r]` to `offsets[r + 1]`."""
    lengths = offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    starts = offsets[rows] - (ends - lengths)
    return np.repeat(starts, lengths) + np.arange(ends[-1] if len(ends) else 0)


ABSENT = -1


class SortedStrings:
    """Distinct strings in order; immutable and safe to read from many threads."""

    __slots__ = ("_places", "ends", "text")

    def __init__(self, text: memoryview, ends: NDArray[np.int64]) -> None:
        self.text = text
        self.ends = ends  # int64 [n + 1], where each ends, after a leading 0
        self._places = ends.data  # gives plain numbers, in a third of numpy's time

    def __len__(self) -> int:
        return len(self.ends) - 1

    @classmethod
    def pack(cls, keys: Iterable[bytes]) -> "SortedStrings":
        """Builds it in memory from sorted, distinct UTF-8 strings."""
        keys = list(keys)
        sizes = np.fromiter(map(len, keys), np.int64, len(keys))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        return cls(memoryview(b"".join(keys)), ends)

    def save(self, text: Path, ends: Path) -> None:
        text.write_bytes(self.text)
        np.save(ends, self.ends, allow_pickle=False)

    @classmethod
    def open(cls, text: Path, ends: Path, count: int | None = None) -> "SortedStrings":
        """Maps the files that `save` wrote."""
        data = map_bytes(text)
        places = map_array(ends, np.int64, None if count is None else count + 1)
        if not len(places) or places[0] or places[-1] != len(data) or (places[1:] <= places[:-1]).any():
            raise FormatError(
                f"{_name(ends)} does not cut the {len(data)} bytes of {text.name} into words; rebuild the index"
            )
        return cls(data.data, places)

    def key(self, place: int) -> bytes:
        """The UTF-8 of a string, 0 to n - 1."""
        places = self._places
        return bytes(self.text[places[place] : places[place + 1]])

    def value(self, place: int) -> str:
        """A string, 0 to n - 1."""
        return self.key(place).decode("utf-8", "replace")

    def find(self, key: bytes) -> int:
        """The position of a string, or `ABSENT`."""
        count = len(self._places) - 1
        place = bisect_left(range(count), key, key=self.key)
        return place if place < count and self.key(place) == key else ABSENT

    def starting(self, prefix: bytes, among: range | None = None) -> range:
        """The positions of the strings that begin with a prefix; `among` those of a shorter one, or all."""
        among = range(len(self)) if among is None else among
        start = bisect_left(among, prefix, key=self.key)
        stop = bisect_left(among, prefix + b"\xff", start, key=self.key)  # no byte of UTF-8 is as large
        return among[start:stop]

    def place(self, key: bytes, *, after: bool = False) -> int:
        """How many strings come before this one, which may be absent; if `after`, this one is counted too."""
        search = bisect_right if after else bisect_left
        return search(range(len(self)), key, key=self.key)


def largest_places(values: NDArray[Any], most: int) -> NDArray[np.intp]:
    """The positions of the largest values, at most `most`, largest first; ties by position."""
    places = np.arange(len(values))
    if len(values) > most:
        places = np.flatnonzero(values >= np.partition(values, -most)[-most])
    order = np.lexsort((places, -values[places].astype(np.int64)))
    return places[order[:most]]


def append_whole(descriptor: int, content: bytes) -> None:
    """Appends all of the content or nothing: half a line would spoil the next one too.

    The caller must keep other writers away from the file.
    """
    size = os.fstat(descriptor).st_size
    written = 0
    try:
        while written < len(content):
            written += os.write(descriptor, content[written:] if written else content)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def end_last_line(descriptor: int) -> None:
    """Adds the line feed that a crash left out of the last line, so that the next line is separate."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        append_whole(descriptor, b"\n")
