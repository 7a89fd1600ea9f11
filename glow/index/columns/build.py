"""Writes columns: the document store is read twice, once to choose fields and once for their values.

Memory does not grow with the documents' content: values wait on disk in sorted runs (`columns_spill`). Only 12 bytes
per distinct value, of one field at a time, are in memory.
"""

import heapq
import mmap
import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glow.index.columns.reader import (
    COLUMNS_FOLDER,
    COLUMNS_HEADER,
    MAX_FIELDS,
    ORDER_FILE,
    VALUES_FILE,
    ArrayName,
    ColumnsHeader,
    FieldHeader,
    PartHeader,
    Place,
)
from glow.index.columns.values import Scalar, ValueType, field_values, instant_of, type_of
from glow.index.stored_fields import StoredDocuments
from glow.storage import allocate

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
    """Collects (row, value) pairs of one type in row order."""

    def __init__(
        self,
        runs: Path,  # path of its working files, which are created if needed
        kind: ValueType,  # the type
    ) -> None:
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
        """Writes the part's arrays and removes its working files."""
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


MAX_SURVEYED = 65_536
"""Limit of the distinct fields that are counted for the choice; later ones are left out."""
MAX_NAMED = 1_000
MAX_VALUE_BYTES = 2_048
"""A string field with a longer value holds text for searching, not for filtering."""
RUN_VALUES = 1 << 18
RUN_BYTES = 32 << 20

Metadata = Mapping[str, Any]


def build_columns(store: StoredDocuments, folder: Path) -> ColumnsHeader:
    """Writes `columns/` into the directory of an unfinished version. Returns the header, for the report."""
    target = folder / COLUMNS_FOLDER
    target.mkdir()
    np.save(target / ORDER_FILE, store.id_ranks(), allow_pickle=False)
    survey = _Survey(store.metadata())
    with ValuesFile(target / VALUES_FILE) as file, TemporaryDirectory(dir=target) as runs:
        writers = _collect(store.metadata(), survey.chosen, survey.dates(), Path(runs))
        fields = [writers[name].finish(name, file, store.count) for name in sorted(writers)]
    left_out = survey.left_out()
    header = ColumnsHeader(
        format=1,
        documents=store.count,
        fields=fields,
        left_out={name: left_out[name] for name in sorted(left_out)[:MAX_NAMED]},
        left_out_fields=len(left_out) + survey.uncounted,
        mixed=survey.mixed()[:MAX_NAMED],
    )
    (target / COLUMNS_HEADER).write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return header


class _Survey:
    """Chooses the fields that get columns."""

    def __init__(self, documents: Iterable[Metadata]) -> None:
        self.uncounted = 0
        self._documents: Counter[str] = Counter()
        self._crowd: dict[str, int] = {}
        """Field -> number of fields of the smallest document that has it."""
        self._texts: set[str] = set()
        self._with_dates: set[str] = set()
        self._with_others: set[str] = set()
        """Fields with strings that are dates, and fields with other strings."""
        for metadata in documents:
            self._add(metadata)
        usable = [name for name in self._documents if name not in self._texts]
        # Ties go to fields of small documents: a thousand keys of one author are rare elsewhere.
        usable.sort(key=lambda name: (-self._documents[name], self._crowd[name], name))
        self.chosen = frozenset(usable[:MAX_FIELDS])

    def _add(self, metadata: Metadata) -> None:
        names = set()
        for name, value in field_values(metadata):
            names.add(name)
            if isinstance(value, str) and name not in self._with_others:
                (self._with_others if instant_of(value) is None else self._with_dates).add(name)
            if isinstance(value, str) and len(value.encode()) > MAX_VALUE_BYTES:
                self._texts.add(name)
        room = MAX_SURVEYED if len(names) <= MAX_FIELDS else MAX_SURVEYED // 2
        for name in names:
            if name in self._documents or len(self._documents) < room:
                self._documents[name] += 1
                self._crowd[name] = min(self._crowd.get(name, len(names)), len(names))
            else:
                self._texts.discard(name)
                self.uncounted += 1

    def dates(self) -> frozenset[str]:
        """Fields with columns whose strings are all dates."""
        return self.chosen & self._with_dates - self._with_others

    def mixed(self) -> list[str]:
        """Fields with columns that hold both dates and other strings."""
        return sorted(self.chosen & self._with_dates & self._with_others)

    def left_out(self) -> dict[str, str]:
        """Field -> why it has no column."""
        return {name: self._reason(name) for name in self._documents if name not in self.chosen}

    def _reason(self, name: str) -> str:
        if name in self._texts:
            return f"it holds a text of more than {MAX_VALUE_BYTES} bytes"
        return f"{MAX_FIELDS} other fields occur in more documents"


def _collect(
    documents: Iterable[Metadata], chosen: frozenset[str], dates: frozenset[str], runs: Path
) -> "dict[str, _FieldWriter]":
    writers = {name: _FieldWriter(runs / str(at)) for at, name in enumerate(sorted(chosen))}
    values = size_bytes = 0
    for row, metadata in enumerate(documents):
        seen: set[tuple[str, ValueType, Scalar]] = set()
        for name, value in field_values(metadata):
            kind = type_of(value)
            # A document counts once per value; true, 1 and "1" are distinct values.
            if kind is None or name not in chosen or (name, kind, value) in seen:
                continue
            seen.add((name, kind, value))
            size_bytes += writers[name].add(row, kind, value)
            values += 1
            instant = instant_of(value) if isinstance(value, str) and name in dates else None
            if instant is not None and (name, "date", instant) not in seen:
                seen.add((name, "date", instant))
                size_bytes += writers[name].add(row, "date", instant)
                values += 1
        if values >= RUN_VALUES or size_bytes >= RUN_BYTES:
            for writer in writers.values():
                writer.spill()
            values = size_bytes = 0
    return writers


class _FieldWriter:
    """Collects the values of one field, by type."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._parts: dict[ValueType, PartWriter] = {}
        self._documents = 0
        self._last_row = -1

    def add(self, row: int, kind: ValueType, value: Scalar) -> int:
        """Adds a value and returns its approximate size in bytes."""
        if row != self._last_row:
            self._last_row, self._documents = row, self._documents + 1
        if kind not in self._parts:
            self._parts[kind] = PartWriter(self._runs.with_suffix(f".{kind}"), kind)
        return self._parts[kind].add(row, value)

    def spill(self) -> None:
        for part in self._parts.values():
            part.spill()

    def finish(self, name: str, file: ValuesFile, count: int) -> FieldHeader:
        parts = [self._parts[kind].finish(file, count) for kind in sorted(self._parts)]
        return FieldHeader(name=name, documents=self._documents, parts=parts)
