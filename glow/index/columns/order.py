"""Orders documents by a field's values, over any rows of one or two segments.

m   requested rows
"""

import numpy as np
from numpy.typing import NDArray

from glow.index.columns.metadata import ValueType
from glow.index.columns.reader import Columns, Field, TypedColumn

__all__ = ["order_kind", "value_ranks"]

_ORDERS: tuple[ValueType, ...] = ("date", "number", "string", "boolean")
MISSING = -1


def order_kind(field: Field) -> ValueType:
    """The type whose values order a field: instants before numbers before texts; other values count as missing."""
    return next(kind for kind in _ORDERS if kind in field.parts)


def value_ranks(
    columns: Columns, name: str, rows: NDArray[np.int64], *, largest: bool = False
) -> NDArray[np.int64]:
    """The rank of each document's value among all values.

    Args:
        columns: of the index.
        name: of a field with a column.
        rows: int64 [m].
        largest: whether a document with several values has the rank of its largest, not its smallest.

    Returns:
        int64 [m], >= 0, equal for equal values; -1 for a document without a value.
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
            held = part.codes[start:stop]
            codes[place] = int(held.max() if largest else held.min())
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
    every: list[bytes | int | float] = sorted({key for held in keys for key in held.values()})
    place_of = {key: place for place, key in enumerate(every)}
    ranks = np.full(len(codes), MISSING, np.int64)
    for held, within in zip(keys, inside, strict=True):
        for place in np.flatnonzero(within & (codes > 0)).tolist():
            ranks[place] = place_of[held[int(codes[place])]]
    return ranks
