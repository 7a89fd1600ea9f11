"""Metadata by field: the columns for filters and facets."""

from glow.index.columns.build import build_columns
from glow.index.columns.component import COLUMNS
from glow.index.columns.dates import duration_s, instant_of, now_s, span_of
from glow.index.columns.format import COLUMNS_FOLDER, MAX_FIELDS, ORDER_FILE, ColumnsHeader
from glow.index.columns.joined import join_columns
from glow.index.columns.metadata import (
    MAX_NAME_CHARACTERS,
    ValueType,
    field_values,
    pick,
    type_of,
)
from glow.index.columns.order import value_ranks
from glow.index.columns.reader import Columns, TypedColumn

__all__ = [
    "COLUMNS",
    "COLUMNS_FOLDER",
    "MAX_FIELDS",
    "MAX_NAME_CHARACTERS",
    "ORDER_FILE",
    "Columns",
    "ColumnsHeader",
    "TypedColumn",
    "ValueType",
    "build_columns",
    "duration_s",
    "field_values",
    "instant_of",
    "join_columns",
    "now_s",
    "pick",
    "span_of",
    "type_of",
    "value_ranks",
]
