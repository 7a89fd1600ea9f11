"""The columns of metadata: files, and what reads them.

n   documents
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from numpy.typing import DTypeLike, NDArray

from glow.errors import FormatError, MismatchError
from glow.index.columns.values import Scalar, ValueType
from glow.options import StrictModel
from glow.storage import SortedStrings, map_array, map_bytes, read_header

COLUMNS_FOLDER = "columns"
COLUMNS_HEADER = "columns.json"
VALUES_FILE = "values.bin"
ORDER_FILE = "order.npy"
MAX_FIELDS = 256
"""Most fields with columns; thousands of keys are data used as names."""

ArrayName = Literal["codes", "offsets", "text", "ends", "near", "rest"]
Count = Annotated[int, pydantic.Field(ge=0, lt=2**62)]


class Place(StrictModel):
    """Position of an array in `values.bin`."""

    start: Count
    size_bytes: Count


class PartHeader(StrictModel):
    """The values of one type in one field."""

    type: ValueType  # of the values
    distinct: Annotated[int, pydantic.Field(ge=1, lt=2**32)]  # number of distinct values
    values: Count  # number of values, each counted once per document
    documents: Count  # number of documents with a value of this type
    has_lists: bool  # whether a document has more than one value
    arrays: dict[ArrayName, Place]  # positions of its arrays


class FieldHeader(StrictModel):
    """One field: its dotted path, number of documents, and values by type."""

    name: str
    documents: Count
    parts: Annotated[list[PartHeader], pydantic.Field(min_length=1, max_length=4)]


class ColumnsHeader(StrictModel):
    """`columns.json`."""

    format: Literal[1]  # format version
    documents: Annotated[int, pydantic.Field(ge=0, lt=2**32)]  # rows of every column
    fields: Annotated[list[FieldHeader], pydantic.Field(max_length=MAX_FIELDS)]  # sorted by name
    left_out: dict[str, str]  # field -> why it has no column; the first thousand by name
    left_out_fields: Count  # total number of those fields, as far as they were counted
    # Fields that hold dates and other texts, and therefore count as texts
    mixed: list[str] = pydantic.Field(default_factory=list)


# Other JSON libraries cannot read larger whole numbers.
MAX_WHOLE = 2**63


@dataclass(frozen=True, slots=True)
class StringValues:
    """Strings in code point order."""

    strings: SortedStrings

    def __len__(self) -> int:
        return len(self.strings)

    def value(self, place: int) -> str:
        """The value at a position, 0 to d - 1."""
        return self.strings.value(place)

    def key(self, place: int) -> bytes:
        """The sort key: UTF-8 sorts like code points."""
        return self.strings.key(place)

    def key_of(self, value: Scalar) -> bytes:
        """The key of a string that may be absent."""
        return str(value).encode()

    def place(self, value: Scalar, after: bool) -> int:
        """How many values come before a string that may be absent; if `after`, it is counted too."""
        return self.strings.place(self.key_of(value), after=after)


@dataclass(frozen=True, slots=True)
class NumberValues:
    """Numbers in order: the nearest float64 [d], and the difference of exact whole numbers, int64 [d] or None."""

    near: NDArray[np.float64]
    rest: NDArray[np.int64] | None
    is_boolean: bool = False

    def __len__(self) -> int:
        return len(self.near)

    def value(self, place: int) -> Scalar:
        """The value at a position, 0 to d - 1; a whole number has no fraction."""
        key = self.key(place)
        return bool(key) if self.is_boolean else key

    def key(self, place: int) -> int | float:
        """The exact number; Python compares whole and other numbers exactly."""
        near = float(self.near[place])
        whole = int(near) + (int(self.rest[place]) if self.rest is not None else 0)
        return whole if near.is_integer() and abs(whole) < MAX_WHOLE else near

    def key_of(self, value: Scalar) -> int | float:
        """The key of a number or boolean that may be absent."""
        return value if isinstance(value, int | float) else float(value)

    def place(self, value: Scalar, after: bool) -> int:
        """How many values come before a number that may be absent; if `after`, it is counted too."""
        key = self.key_of(value)
        # Rounding keeps the order, so only numbers with the same nearest float64 need an exact comparison.
        first, last = (int(self.near.searchsorted(float(key), side)) for side in ("left", "right"))
        search = bisect_right if after else bisect_left
        return search(range(len(self)), key, first, last, key=self.key)


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The values of one type in one field."""

    type: ValueType  # of the values
    codes: NDArray[np.unsignedinteger]  # unsigned [n] of single values; [m] if documents have lists
    # int64 [n + 1]: document i has codes[offsets[i]:offsets[i + 1]]; None for single values
    offsets: NDArray[np.int64] | None
    values: StringValues | NumberValues  # the dictionary
    documents: int  # documents with a value

    def find(self, value: Scalar) -> int:
        """The code of a value, 0 if no document has it."""
        place = self.values.place(value, after=False)
        is_there = place < len(self.values) and self.values.key(place) == self.values.key_of(value)
        return place + 1 if is_there else 0

    def between(
        self, low: Scalar | None, high: Scalar | None, includes_low: bool = True, includes_high: bool = True
    ) -> range:
        """The codes of the values from `low` to `high`; None is no bound."""
        first, last = 0, len(self.values)
        if low is not None:
            first = self.values.place(low, after=not includes_low)
        if high is not None:
            last = self.values.place(high, after=includes_high)
        return range(first + 1, last + 1)


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its dotted path, number of documents, and values by type."""

    name: str
    documents: int
    parts: Mapping[ValueType, TypedColumn]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an index version; immutable, so safe to read from many threads."""

    documents: int  # n
    fields: Mapping[str, Field]  # by name, sorted
    left_out: Mapping[str, str]  # field -> why it has no column
    order: NDArray[np.uint32]  # uint32 [n], the rank of each document's id in code point order
    find: Callable[[Sequence[str]], list[int | None]] = lambda ids: [None] * len(ids)  # rows of ids

    @property
    def segments(self) -> "tuple[tuple[int, Columns], ...]":
        """The first row of each segment and its columns, in the order of rows."""
        return ((0, self),)

    @classmethod
    def open(cls, folder: Path, documents: int) -> "Columns":
        """Opens `columns/` of an index version."""
        header = read_header(folder / COLUMNS_FOLDER / COLUMNS_HEADER, ColumnsHeader)
        if header.documents != documents:
            raise MismatchError(
                f"{COLUMNS_FOLDER}/ describes {header.documents} documents, the index has {documents}; "
                "rebuild the index"
            )
        target = folder / COLUMNS_FOLDER
        data = map_bytes(target / VALUES_FILE)
        fields = {
            field.name: Field(
                field.name,
                field.documents,
                {part.type: _open_part(data, part, documents) for part in field.parts},
            )
            for field in header.fields
        }
        order = map_array(target / ORDER_FILE, np.uint32, documents)
        return cls(documents, fields, header.left_out, order)


def _open_part(data: NDArray[np.uint8], header: PartHeader, documents: int) -> TypedColumn:
    length = header.values if header.has_lists else documents
    codes = _array(data, header, "codes", np.min_scalar_type(header.distinct), length)
    if length and int(codes.max()) > header.distinct:
        raise _damaged("codes go beyond their dictionary")
    offsets = _ascending(data, header, "offsets", documents, length) if header.has_lists else None
    values: StringValues | NumberValues
    if header.type == "string":
        text = header.arrays.get("text")
        size = text.size_bytes if text else 0
        ends = _ascending(data, header, "ends", header.distinct, size)
        values = StringValues(SortedStrings(_array(data, header, "text", np.uint8, size).data, ends))
    else:
        near = _array(data, header, "near", np.float64, header.distinct)
        if not np.isfinite(near).all() or (near[:-1] > near[1:]).any():
            raise _damaged("numbers are not sorted or not finite")
        has_rest = "rest" in header.arrays
        rest = _array(data, header, "rest", np.int64, header.distinct) if has_rest else None
        values = NumberValues(near, rest, header.type == "boolean")
    return TypedColumn(header.type, codes, offsets, values, header.documents)


def _array(
    data: NDArray[np.uint8], header: PartHeader, name: ArrayName, kind: DTypeLike, length: int
) -> NDArray[Any]:
    place = header.arrays.get(name)
    expected = np.dtype(kind).itemsize * length
    if place is None or place.size_bytes != expected or place.start + expected > len(data):
        raise _damaged(f"array {name!r} does not match {COLUMNS_HEADER}")
    return data[place.start : place.start + expected].view(kind)


def _ascending(
    data: NDArray[np.uint8], header: PartHeader, name: ArrayName, count: int, end: int
) -> NDArray[np.int64]:
    """Offsets from 0 to `end`, not descending, int64 [count + 1]."""
    offsets = _array(data, header, name, np.int64, count + 1)
    if int(offsets[0]) or int(offsets[-1]) != end or (offsets[:-1] > offsets[1:]).any():
        raise _damaged(f"array {name!r} holds no offsets")
    return offsets


def _damaged(what: str) -> FormatError:
    return FormatError(f"{COLUMNS_FOLDER}/{VALUES_FILE} is damaged: {what}; rebuild the index")


_ORDERS: tuple[ValueType, ...] = ("date", "number", "string", "boolean")
MISSING = -1


def order_kind(field: Field) -> ValueType:
    """The type whose values order a field: instants before numbers before texts; other values count as missing."""
    return next(kind for kind in _ORDERS if kind in field.parts)


def value_ranks(
    columns: Columns,
    name: str,
    rows: NDArray[np.int64],  # int64 [m]
    *,
    # Whether a document with several values has the rank of its largest, not its smallest
    largest: bool = False,
) -> NDArray[np.int64]:
    """The rank of each document's value among all values.

    Returns int64 [m], >= 0, equal for equal values; -1 for a document without a value.
    """
    kind = order_kind(columns.fields[name])
    segments = columns.segments
    codes = np.zeros(len(rows), np.int64)
    parts: list[TypedColumn | None] = []
    inside = []
    for start, segment in segments:
        field = segment.fields.get(name)
        part = field.parts.get(kind) if field is not None else None
        within = (rows >= start) & (rows < start + segment.documents)
        parts.append(part)
        inside.append(within)
        if part is not None:
            codes[within] = _codes(part, rows[within] - start, largest=largest)
    if len(segments) == 1:
        return codes - 1
    return _over_segments(codes, parts, inside)


def _codes(part: TypedColumn, rows: NDArray[np.int64], *, largest: bool) -> NDArray[np.int64]:
    """Each row's code, in the order of values; 0 if it has none."""
    if part.offsets is None:
        return part.codes[rows].astype(np.int64)
    codes = np.zeros(len(rows), np.int64)
    starts, stops = part.offsets[rows].tolist(), part.offsets[rows + 1].tolist()
    for place, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if stop > start:
            own = part.codes[start:stop]
            codes[place] = int(own.max() if largest else own.min())
    return codes


def _over_segments(
    codes: NDArray[np.int64], parts: list[TypedColumn | None], inside: list[NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """Ranks from codes of two dictionaries: compares the values themselves, each once."""
    keys = []
    for part, within in zip(parts, inside, strict=True):
        different = np.unique(codes[within & (codes > 0)]).tolist()
        keys.append({code: part.values.key(code - 1) for code in different} if part is not None else {})
    # Keys of one type: strings as UTF-8, others as exact numbers.
    every: list[bytes | int | float] = sorted({key for own in keys for key in own.values()})
    place_of = {key: place for place, key in enumerate(every)}
    ranks = np.full(len(codes), MISSING, np.int64)
    for own, within in zip(keys, inside, strict=True):
        for place in np.flatnonzero(within & (codes > 0)).tolist():
            ranks[place] = place_of[own[int(codes[place])]]
    return ranks
