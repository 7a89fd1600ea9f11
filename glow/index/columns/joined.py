"""The metadata columns of a base and a delta as one: masks and fields; `facets` counts per segment itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.index.columns.filters import FilterMasks, evaluate
from glow.index.columns.metadata import ValueType
from glow.index.columns.reader import Columns, Field, TypedColumn
from glow.index.segments import Segments

__all__ = ["FilteredColumns", "SegmentedColumns", "join_columns", "segment_masks"]


@dataclass(frozen=True, slots=True, eq=False)
class FilteredColumns:
    """Columns and their filter masks, for searches.

    Attributes:
        columns: the metadata, of one segment or of two.
        masks: which rows a filter allows.
    """

    columns: Columns
    masks: FilterMasks


@dataclass(frozen=True, slots=True)
class SegmentedColumns(Columns):
    """Columns of two segments. `fields` has names, types and documents; codes belong to each segment.

    Attributes:
        base, delta: the segments' columns.
    """

    base: Columns
    delta: Columns

    @property
    def segments(self) -> tuple[tuple[int, Columns], ...]:
        """The first row of each segment and its columns, in the order of rows."""
        return ((0, self.base), (self.base.documents, self.delta))


def join_columns(
    base: Columns, delta: Columns, gone: NDArray[np.int64], order: NDArray[np.uint32]
) -> SegmentedColumns:
    """The columns of both. A field that one of them left out has no column, as in a rebuild.

    Args:
        base, delta: N and M documents.
        gone: deleted rows of the base, int64 [t].
        order: uint32 [N + M], the rank of each document's id.
    """
    left_out = {**base.left_out, **delta.left_out}
    fields = {}
    for name in sorted({*base.fields, *delta.fields} - left_out.keys()):
        joined = _join(name, base.fields.get(name), delta.fields.get(name), gone)
        if joined.documents:
            fields[name] = joined
    return SegmentedColumns(base.documents + delta.documents, fields, left_out, order, base, delta)


def segment_masks(columns: SegmentedColumns, segments: Segments) -> FilterMasks:
    """The masks of filters over both; no mask includes deleted rows, not even a complement."""
    return FilterMasks(
        lambda expression, check: segments.join(
            evaluate(expression, columns.base, check), evaluate(expression, columns.delta, check)
        ),
        tells_filters=True,
    )


def _join(name: str, base: Field | None, delta: Field | None, gone: NDArray[np.int64]) -> Field:
    documents = sum(field.documents for field in (base, delta) if field is not None)
    parts: dict[ValueType, TypedColumn] = {}
    for field in (delta, base):
        if field is not None:
            parts |= field.parts
    # Dates in one segment and other texts in the other make a text field, as in a rebuild.
    if any(
        field is not None and "string" in field.parts and "date" not in field.parts for field in (base, delta)
    ):
        parts.pop("date", None)
    return Field(name, documents - (_holders(base, gone) if base else 0), dict(sorted(parts.items())))


def _holders(field: Field, rows: NDArray[np.int64]) -> int:
    """How many of the rows have the field."""
    held = np.zeros(len(rows), np.bool_)
    for part in field.parts.values():
        if part.offsets is None:
            held |= part.codes[rows] != 0
        else:
            held |= part.offsets[rows + 1] > part.offsets[rows]
    return int(np.count_nonzero(held))
