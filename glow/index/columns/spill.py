"""Writes one part of a column: sorted runs on disk, merged into one dictionary at the end.

d   distinct values    n   documents
"""

import heapq
import mmap
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glow.index.columns.format import ArrayName, PartHeader, Place
from glow.index.columns.metadata import Scalar, ValueType
from glow.storage import allocate

__all__ = ["PartWriter", "ValuesFile"]

ALIGNMENT = 64
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<dq")
_PAIR = np.dtype([("row", "<u4"), ("code", "<u4")])
# A run's dictionary holds UTF-8 or numbers, never both.
Key = Any


@dataclass(frozen=True, slots=True)
class _Run:
    """Position of a run: bytes of its dictionary, and number of its pairs."""

    start: int
    stop: int
    pairs: int


class ValuesFile:
    """Writer of `values.bin`: arrays one after another; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, blocks: Iterable[Any]) -> Place:
        """Writes blocks of bytes as one array."""
        start = self._align()
        for block in blocks:
            self._file.write(block)
        return Place(start=start, size_bytes=self._file.tell() - start)

    def reserve(self, kind: DTypeLike, length: int) -> tuple[Place, NDArray[Any]]:
        """Space for an array of zeros, to be filled in any order; length >= 1."""
        start = self._align()
        self._file.flush()
        allocate(self._path, start, np.dtype(kind).itemsize * length)
        array: NDArray[Any] = np.memmap(self._path, kind, "r+", start, (length,))
        self._file.seek(0, 2)
        return Place(start=start, size_bytes=array.nbytes), array

    def _align(self) -> int:
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        return self._file.tell()


class PartWriter:
    """Collects (row, value) pairs of one type in row order.

    Args:
        runs: path of its working files, which are created if needed.
        kind: the type.
    """

    def __init__(self, runs: Path, kind: ValueType) -> None:
        self._kind = kind
        self._rows = array("I")
        self._keys: list[Key] = []
        self._runs: list[_Run] = []
        # Reopened for each run: hundreds of parts may be written at once.
        self._values_file = runs.with_name(runs.name + ".values")
        self._pairs_file = runs.with_name(runs.name + ".pairs")
        self._last_row = -1
        self._documents = self._values = 0
        self._has_lists = False

    def add(self, row: int, value: Scalar) -> int:
        """Adds a value, once per document, and returns its approximate size in bytes."""
        if row == self._last_row:
            self._has_lists = True
        else:
            self._last_row, self._documents = row, self._documents + 1
        # UTF-8 sorts like code points.
        key: Key = value.encode() if isinstance(value, str) else value
        self._rows.append(row)
        self._keys.append(key)
        self._values += 1
        return 64 + (len(key) if isinstance(key, bytes) else 0)

    def spill(self) -> None:
        """Writes the collected pairs as one sorted run."""
        if not self._keys:
            return
        distinct = sorted(set(self._keys))
        codes = {key: code for code, key in enumerate(distinct)}
        pairs = np.empty(len(self._keys), _PAIR)
        pairs["row"] = self._rows
        pairs["code"] = np.fromiter((codes[key] for key in self._keys), np.uint32, len(self._keys))
        with self._values_file.open("ab") as values, self._pairs_file.open("ab") as places:
            start = values.tell()
            values.writelines(_encoded(distinct))
            places.write(pairs.tobytes())
            self._runs.append(_Run(start, values.tell(), len(pairs)))
        self._rows, self._keys = array("I"), []

    def finish(self, file: ValuesFile, count: int) -> PartHeader:
        """Writes the part's arrays and removes its working files.

        Args:
            file: destination.
            count: n.
        """
        self.spill()
        arrays, moves, distinct = self._write_dictionary(file)
        arrays |= self._write_codes(file, moves, distinct, count)
        self._values_file.unlink()
        self._pairs_file.unlink()
        return PartHeader(
            type=self._kind,
            distinct=distinct,
            values=self._values,
            documents=self._documents,
            has_lists=self._has_lists,
            arrays=arrays,
        )

    def _write_dictionary(self, file: ValuesFile) -> "tuple[dict[ArrayName, Place], list[array[int]], int]":
        """Writes the distinct values in order; returns their arrays, the final codes of each run's values, and their number."""
        moves = [array("I") for _ in self._runs]
        with (
            self._values_file.open("rb") as values,
            mmap.mmap(values.fileno(), 0, access=mmap.ACCESS_READ) as stored,
        ):
            merged = _merge([_keys(stored, run, self._kind) for run in self._runs], moves)
            if self._kind == "string":
                ends = array("q", [0])
                text = file.append(_with_ends(merged, ends))
                return {"text": text, "ends": file.append([ends])}, moves, len(ends) - 1
            near, rest = array("d"), array("q")
            for key in merged:
                number = _split(key)
                near.append(number[0])
                rest.append(number[1])
        arrays: dict[ArrayName, Place] = {"near": file.append([near])}
        if any(rest):
            arrays["rest"] = file.append([rest])
        return arrays, moves, len(near)

    def _write_codes(
        self, file: ValuesFile, moves: "list[array[int]]", distinct: int, count: int
    ) -> dict[ArrayName, Place]:
        length = self._values if self._has_lists else count
        place, codes = file.reserve(np.min_scalar_type(distinct), length)
        arrays: dict[ArrayName, Place] = {"codes": place}
        offsets = None
        if self._has_lists:
            arrays["offsets"], offsets = file.reserve(np.int64, count + 1)
        pairs, done = np.memmap(self._pairs_file, _PAIR, "r"), 0
        for run, move in zip(self._runs, moves, strict=True):
            block = pairs[done : done + run.pairs]
            final = np.frombuffer(move, np.uint32)[block["code"]]
            if offsets is None:
                codes[block["row"]] = final
            else:
                codes[done : done + run.pairs] = final
                rows, lengths = np.unique(block["row"], return_counts=True)
                offsets[rows.astype(np.int64) + 1] += lengths
            done += run.pairs
        if offsets is not None:
            np.cumsum(offsets, out=offsets)
        return arrays


def _split(value: int | float) -> tuple[float, int]:
    """A number as the nearest float64 and the difference, so that 64-bit whole numbers stay exact."""
    near = float(value)
    return near, value - int(near) if isinstance(value, int) else 0


def _encoded(keys: list[Key]) -> Iterator[bytes]:
    for key in keys:
        yield _LENGTH.pack(len(key)) + key if isinstance(key, bytes) else _NUMBER.pack(*_split(key))


def _keys(stored: mmap.mmap, run: _Run, kind: ValueType) -> Iterator[Key]:
    """The values of one run, in order."""
    at = run.start
    while at < run.stop:
        if kind == "string":
            (length,) = _LENGTH.unpack_from(stored, at)
            at += _LENGTH.size
            yield stored[at : at + length]
            at += length
        else:
            near, rest = _NUMBER.unpack_from(stored, at)
            at += _NUMBER.size
            yield int(near) + rest if rest else near


def _merge(runs: list[Iterator[Key]], moves: "list[array[int]]") -> Iterator[Key]:
    """Each distinct value of all runs once, in order; notes its code, counted from 1, for each run with it."""
    code, last = 0, None
    for key, at in heapq.merge(*(_numbered(run, at) for at, run in enumerate(runs))):
        is_new = last is None or key != last
        code, last = code + is_new, key
        moves[at].append(code)
        if is_new:
            yield key


def _numbered(run: Iterator[Key], at: int) -> Iterator[tuple[Key, int]]:
    for key in run:
        yield key, at


def _with_ends(keys: Iterator[bytes], ends: "array[int]") -> Iterator[bytes]:
    for key in keys:
        ends.append(ends[-1] + len(key))
        yield key
