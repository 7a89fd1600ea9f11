"""Metadata columns as a component of an index."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glow.errors import MismatchError
from glow.index.columns.build import build_columns
from glow.index.columns.filters import FilterMasks
from glow.index.columns.format import COLUMNS_FOLDER, COLUMNS_HEADER, ORDER_FILE, VALUES_FILE, ColumnsHeader
from glow.index.columns.joined import FilteredColumns, join_columns, segment_masks
from glow.index.columns.reader import Columns, Field
from glow.index.component import Asked, Component, ComponentOptions, Rules
from glow.index.corpus import Corpus
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.index.stored_fields import STORED_FIELDS
from glow.storage import read_header

__all__ = ["COLUMNS", "MetadataColumns"]

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
