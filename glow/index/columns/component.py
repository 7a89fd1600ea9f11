"""Metadata columns as a component of an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
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
)
from glow.index.columns.values import ValueType
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Rules
from glow.index.segment import MergeSource, Segment, Segments
from glow.index.stored_fields import STORED_FIELDS
from glow.storage import read_header


@dataclass(frozen=True, slots=True, eq=False)
class FilteredColumns:
    """Columns and their filter masks, for searches."""

    columns: Columns  # the metadata, of all segments
    masks: FilterMasks  # which rows a filter allows


@dataclass(frozen=True, slots=True)
class SegmentedColumns(Columns):
    """Columns of several segments. `fields` has names, types and documents; codes belong to each segment."""

    parts: tuple[Columns, ...] = ()  # the segments' columns

    @property
    def segments(self) -> tuple[tuple[int, Columns], ...]:
        """The first row of each segment and its columns, in the order of rows."""
        starts = accumulate((part.documents for part in self.parts), initial=0)
        return tuple(zip(starts, self.parts, strict=False))


def join_columns(
    parts: Sequence[Columns],
    gone: Sequence[NDArray[np.int64]],  # deleted rows of each
    order: NDArray[np.uint32],  # uint32 [n], the rank of each document's id
) -> SegmentedColumns:
    """The columns of all segments. A field that one of them left out has no column, as in a rebuild."""
    left_out = {name: cause for part in parts for name, cause in part.left_out.items()}
    fields = {}
    for name in sorted({name for part in parts for name in part.fields} - left_out.keys()):
        own = [
            (part.fields[name], rows) for part, rows in zip(parts, gone, strict=True) if name in part.fields
        ]
        joined = _join(name, own)
        if joined.documents:
            fields[name] = joined
    documents = sum(part.documents for part in parts)
    return SegmentedColumns(documents, fields, left_out, order, parts=tuple(parts))


def _join(name: str, own: Sequence[tuple[Field, NDArray[np.int64]]]) -> Field:
    """One field of several segments, with the deleted rows of each."""
    types: dict[ValueType, TypedColumn] = {}
    for field, _ in reversed(own):
        types |= field.parts
    # Dates in one segment and other texts in another make a text field, as in a rebuild.
    if any("string" in field.parts and "date" not in field.parts for field, _ in own):
        types.pop("date", None)
    documents = sum(field.documents - _holders(field, gone) for field, gone in own)
    return Field(name, documents, dict(sorted(types.items())))


def _holders(field: Field, rows: NDArray[np.int64]) -> int:
    """How many of the rows have the field."""
    holds = np.zeros(len(rows), np.bool_)
    for part in field.parts.values():
        if part.offsets is None:
            holds |= part.codes[rows] != 0
        else:
            holds |= part.offsets[rows + 1] > part.offsets[rows]
    return int(np.count_nonzero(holds))


SHOWN_COLUMNS = 200


class MetadataColumns(Component[Columns, FilteredColumns]):
    """Metadata for filters, facets and sorting, and the rank of each document's id; built and merged from stored documents."""

    name = "columns"
    part = "columns"
    label = "columns"
    stage = "columns"
    paths, needs = (f"{COLUMNS_FOLDER}/",), ("stored_fields",)

    def rules(self, options: ComponentOptions, inputs: BuildInputs) -> Rules:
        """Every index has them."""
        return Rules()

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules:
        """Every index has them."""
        return Rules()

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """Reads the stored documents twice."""
        build_columns(corpus.made[STORED_FIELDS], corpus.made.folder)

    def merge(self, sources: Sequence[MergeSource], rules: Rules, target: Segment) -> None:
        """Builds them anew: the choice of fields depends on all documents."""
        build_columns(target[STORED_FIELDS], target.folder)

    def report(self, segment: Segment, rules: Rules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Metadata that can be filtered."""
        return {"columns": _describe(_header(segment.path(COLUMNS_FOLDER)))}

    def open(self, segment: Segment) -> Columns:
        """Opens the directory; an index of an old version of GLOW, which lacks it, is refused."""
        if not segment.has_any(self.paths):
            where = " in its delta" if segment.below else ""
            raise MismatchError(f"index {segment.name} holds no metadata columns{where}; {segment.remedy}")
        segment.require(*(f"{COLUMNS_FOLDER}/{name}" for name in (COLUMNS_HEADER, VALUES_FILE, ORDER_FILE)))
        folder, expected = segment.path(COLUMNS_FOLDER), segment.rows.documents
        if segment.below and (documents := _header(folder).documents) != expected:
            raise MismatchError(
                f"{segment.below}{COLUMNS_FOLDER}/ describes {documents} documents, "
                f"{segment.below}delta.json says {expected} documents; {segment.remedy}"
            )
        # Looked up when a filter asks, because the documents of a store open the columns.
        return replace(
            Columns.open(folder.parent, expected), find=lambda ids: segment[STORED_FIELDS].find_all(ids)
        )

    def reader(self, segments: Segments[Columns]) -> FilteredColumns:
        """The columns of all segments, and masks of filters without deleted rows, also of complements."""
        parts, rows = segments.readers, segments.layout
        columns = join_columns(parts, rows.gone, segments.order) if segments.only is None else segments.only
        masks = FilterMasks(
            lambda expression, check: rows.join([evaluate(expression, part, check) for part in parts]),
            tells_filters=True,
        )
        return FilteredColumns(columns, masks)

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
