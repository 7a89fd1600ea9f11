"""Columns of a few documents, in memory: what candidates of several shards are sorted, grouped and counted by."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.search.columns.dates import instant_of
from glow.search.columns.metadata import Scalar, ValueType, field_values, type_of
from glow.search.columns.reader import Columns, Field, NumberValues, StringValues, TypedColumn
from glow.storage import SortedStrings

__all__ = ["columns_in_memory"]

Values = list[set[Scalar]]
"""The values of one type in each document."""


def columns_in_memory(
    metadata: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Collection[ValueType]],
    documents: Mapping[str, int] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Columns:
    """Makes columns of documents that are at hand.

    Args:
        metadata: of each document, in the order of rows and ids; may be of no document.
        fields: name -> the types that its values have in the whole index; another type's are passed over.
        documents: name -> how many documents of the whole index have the field; None: those at hand are counted.
        left_out: field -> why it has no column.
    """
    found = {name: _by_type(types, len(metadata)) for name, types in fields.items()}
    for row, each in enumerate(metadata):
        for name, value in field_values(each):
            if name in found:
                _add(found[name], row, value)
    columns = {
        name: Field(
            name,
            _holders(parts) if documents is None else documents.get(name, 0),
            {kind: _column(kind, values) for kind, values in sorted(parts.items())},
        )
        for name, parts in sorted(found.items())
    }
    return Columns(len(metadata), columns, left_out or {}, np.arange(len(metadata), dtype=np.uint32))


def _by_type(types: Collection[ValueType], rows: int) -> dict[ValueType, Values]:
    return {kind: [set() for _ in range(rows)] for kind in types}


def _add(parts: dict[ValueType, Values], row: int, value: Scalar) -> None:
    kind = type_of(value)
    if kind in parts and kind is not None:
        parts[kind][row].add(value)
    if "date" in parts and isinstance(value, str):
        instant = instant_of(value)
        if instant is not None:
            parts["date"][row].add(instant)


def _holders(parts: Mapping[ValueType, Values]) -> int:
    return sum(any(values) for values in zip(*parts.values(), strict=True))


def _column(kind: ValueType, values: Values) -> TypedColumn:
    distinct = sorted(set().union(*values)) if values else []
    code_of = {value: code for code, value in enumerate(distinct, 1)}
    held = [sorted(code_of[value] for value in each) for each in values]
    size = np.min_scalar_type(len(distinct))
    offsets = None
    if any(len(each) > 1 for each in held):
        offsets = np.cumsum([0, *(len(each) for each in held)]).astype(np.int64)
        codes = np.array([code for each in held for code in each], size)
    else:
        codes = np.array([each[0] if each else 0 for each in held], size)
    return TypedColumn(kind, codes, offsets, _dictionary(kind, distinct), sum(bool(each) for each in held))


def _dictionary(kind: ValueType, distinct: Sequence[Scalar]) -> StringValues | NumberValues:
    if kind == "string":
        return StringValues(SortedStrings.pack(str(value).encode() for value in distinct))
    near = [float(value) for value in distinct]
    left = [
        value - int(nearest) if isinstance(value, int) else 0
        for value, nearest in zip(distinct, near, strict=True)
    ]
    rest: NDArray[np.int64] = np.array(left, np.int64)
    return NumberValues(np.array(near, np.float64), rest if rest.any() else None, kind == "boolean")
