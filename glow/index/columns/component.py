"""Metadata columns as a component of an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.columns.build import build_columns
from glow.index.columns.masks import FilterMasks, evaluate
from glow.index.columns.reader import (
    COLUMNS_FOLDER,
    COLUMNS_HEADER,
    ORDER_FILE,
    VALUES_FILE,
    Columns,
    ColumnsHeader,
    Field,
    TypedColumn,
    ValueType,
)
from glow.index.component import Asked, Component, ComponentOptions, Corpus, Rules
from glow.index.segment import BaseAndDelta, MergeSource, Segment, Segments
from glow.index.stored_fields import STORED_FIELDS
from glow.storage import read_header


@dataclass(frozen=True, slots=True, eq=False)
class FilteredColumns:
    """Columns and their filter masks, for searches."""

    columns: Columns  # the metadata, of one segment or of two
    masks: FilterMasks  # which rows a filter allows


@dataclass(frozen=True, slots=True)
class SegmentedColumns(Columns):
    """Columns of two segments. `fields` has names, types and documents; codes belong to each segment."""

    base: Columns  # base, delta: the segments' columns
    delta: Columns

    @property
    def segments(self) -> tuple[tuple[int, Columns], ...]:
        """The first row of each segment and its columns, in the order of rows."""
        return ((0, self.base), (self.base.documents, self.delta))


def join_columns(
    base: Columns,
    delta: Columns,
    gone: NDArray[np.int64],  # deleted rows of the base, int64 [t]
    order: NDArray[np.uint32],  # uint32 [N + M], the rank of each document's id
) -> SegmentedColumns:
    """The columns of both. A field that one of them left out has no column, as in a rebuild."""
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


SHOWN_COLUMNS = 200


class MetadataColumns(Component[Columns, FilteredColumns, Rules, ComponentOptions]):
    """Metadata for filters, facets and sorting, and the rank of each document's id; built and merged from stored documents."""

    name = "columns"
    part = "columns"
    label = "columns"
    stage = "columns"
    paths = (f"{COLUMNS_FOLDER}/",)

    def rules(self, options: ComponentOptions, asked: Asked) -> Rules:
        """Every index has them."""
        return Rules()

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules:
        """Every index has them."""
        return Rules()

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """Reads the stored documents twice."""
        build_columns(corpus.made[STORED_FIELDS], corpus.made.folder)

    def merge(self, kept: Sequence[MergeSource], rules: Rules, made: Segment) -> None:
        """Builds them anew: the choice of fields depends on all documents."""
        build_columns(made[STORED_FIELDS], made.folder)

    def report(self, made: Segment, rules: Rules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Metadata that can be filtered."""
        return {"columns": _describe(_header(made.path(COLUMNS_FOLDER)))}

    def open(self, segment: Segment) -> Columns:
        """Opens the directory; an index of an old version of GLOW, which lacks it, is refused."""
        if not segment.has_any(self.paths):
            where = " in its delta" if segment.below else ""
            raise MismatchError(f"index {segment.name} holds no metadata columns{where}; {segment.remedy}")
        segment.require(*(f"{COLUMNS_FOLDER}/{name}" for name in (COLUMNS_HEADER, VALUES_FILE, ORDER_FILE)))
        folder, expected = segment.path(COLUMNS_FOLDER), segment.rows.documents
        if segment.below and (found := _header(folder).documents) != expected:
            raise MismatchError(
                f"{segment.below}{COLUMNS_FOLDER}/ describes {found} documents, "
                f"{segment.below}delta.json says {expected} documents; {segment.remedy}"
            )
        return Columns.open(folder.parent, expected)

    def alone(self, reader: Columns, segment: Segment) -> FilteredColumns:
        """The columns, and the masks of filters over them."""
        return FilteredColumns(reader, FilterMasks(reader, tells_filters=True))

    def join(self, both: BaseAndDelta[Columns]) -> FilteredColumns:
        """The columns of both segments, and masks without deleted rows."""
        columns = join_columns(both.base, both.delta, both.tombstones, both.order)
        return FilteredColumns(columns, segment_masks(columns, both.segments))

    def serves(self, reader: FilteredColumns | None) -> Mapping[str, str]:
        """Filters and facets."""
        lacks = "this index holds no metadata columns; build it again with this version (glow build)"
        return dict.fromkeys(("filter", "facets"), lacks if reader is None else "")

    def info(self, reader: FilteredColumns | None) -> dict[str, Any]:
        """Metadata that can be filtered and counted: types, documents with a value, distinct values."""
        fields = {} if reader is None else reader.columns.fields
        return {"columns": {name: _column(field) for name, field in list(fields.items())[:SHOWN_COLUMNS]}}


COLUMNS = MetadataColumns()


def _header(folder: Path) -> ColumnsHeader:
    return read_header(folder / COLUMNS_HEADER, ColumnsHeader)


def _describe(header: ColumnsHeader) -> dict[str, Any]:
    """For each field the number of documents, and distinct values by type."""
    fields = {
        field.name: {
            "documents": field.documents,
            "distinct": {part.type: part.distinct for part in field.parts},
            "lists": any(part.has_lists for part in field.parts),
        }
        for field in header.fields
    }
    return {
        "fields": fields,
        "left_out": header.left_out,
        "left_out_fields": header.left_out_fields,
        "mixed": header.mixed,
    }


def _column(field: Field) -> dict[str, Any]:
    # The strings of a date field are its dates.
    hidden = "string" if "date" in field.parts else "date"
    types = [kind for kind in field.parts if kind != hidden]
    distinct = sum(len(part.values) for kind, part in field.parts.items() if kind in types)
    return {"type": types[0], "types": types, "documents": field.documents, "distinct": distinct}
