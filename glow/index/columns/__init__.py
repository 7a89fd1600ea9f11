"""Metadata by field: the columns that filters and facets read."""

from glow.index.columns.build import build_columns
from glow.index.columns.dates import DateSpan, duration_s, instant_of, now_s, span_of
from glow.index.columns.format import COLUMNS_FOLDER, COLUMNS_HEADER, MAX_FIELDS, ORDER_FILE, ColumnsHeader
from glow.index.columns.metadata import (
    MAX_NAME_CHARACTERS,
    VALUE_TYPES,
    Scalar,
    ValueType,
    field_values,
    pick,
    type_of,
)
from glow.index.columns.order import order_kind, value_ranks
from glow.index.columns.reader import Columns, Field, TypedColumn

__all__ = [
    "COLUMNS_FOLDER",
    "COLUMNS_HEADER",
    "MAX_FIELDS",
    "MAX_NAME_CHARACTERS",
    "ORDER_FILE",
    "VALUE_TYPES",
    "Columns",
    "ColumnsHeader",
    "DateSpan",
    "Field",
    "Scalar",
    "TypedColumn",
    "ValueType",
    "build_columns",
    "duration_s",
    "field_values",
    "instant_of",
    "now_s",
    "order_kind",
    "pick",
    "span_of",
    "type_of",
    "value_ranks",
]
