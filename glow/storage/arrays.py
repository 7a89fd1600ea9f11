"""Arrays in files of an artifact: memory-mapped, and checked before use."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glow.errors import FormatError

__all__ = ["allocate", "map_array", "map_bytes", "map_matrix", "new_array"]


def map_array(path: Path, kind: DTypeLike, length: int | None) -> NDArray[Any]:
    """Opens a one-dimensional array of a known type and length without reading its values.

    Args:
        path: a `.npy` file.
        kind: its dtype.
        length: how many values it must hold; None if unknown.

    Raises:
        FormatError: if it cannot be read or holds something else; the message names the file.
    """
    array = _load(path, is_empty=length == 0)
    wanted = f"{np.dtype(kind)} [{'n' if length is None else length}]"
    if array.dtype != np.dtype(kind) or array.ndim != 1 or length not in (None, len(array)):
        raise _other(path, array, wanted)
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


def _other(path: Path, array: NDArray[Any], wanted: str) -> FormatError:
    found = f"{array.dtype} {list(array.shape)}"
    return FormatError(f"{_name(path)} holds {found:.200}, expected {wanted}; rebuild the index")


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Opens a file of plain bytes, uint8 [size].

    Raises:
        FormatError: if it cannot be read; the message names the file.
    """
    try:
        # An empty file cannot be mapped.
        size = path.stat().st_size
        return np.memmap(path, np.uint8, "r").view(np.ndarray) if size else np.empty(0, np.uint8)
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read {_name(path)}: {error}; rebuild the index") from error


def new_array(path: Path, kind: DTypeLike, length: int) -> NDArray[Any]:
    """Creates a `.npy` file of zeros, mapped for writing in any order; an empty array is in memory only.

    Raises:
        OSError: if the disk is full; raised here, not at a later write.
    """
    if length == 0:  # an empty file cannot be mapped
        np.save(path, np.empty(0, kind), allow_pickle=False)
        return np.empty(0, kind)
    array: NDArray[Any] = np.lib.format.open_memmap(path, "w+", kind, (length,))
    allocate(path, 0, path.stat().st_size)
    return array


def allocate(path: Path, start: int, size_bytes: int) -> None:
    """Reserves disk space for bytes to be written through a map: a full disk would otherwise kill the process at a write.

    Raises:
        OSError: if the disk has less space.
    """
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), start, size_bytes)


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
