"""Metadata by field: the columns that filters and facets read."""

from glow.search.columns.build import build_columns
from glow.search.columns.dates import DateSpan, duration_s, instant_of, now_s, span_of
from glow.search.columns.format import COLUMNS_FOLDER, COLUMNS_HEADER, ORDER_FILE, ColumnsHeader
from glow.search.columns.metadata import VALUE_TYPES, Scalar, ValueType, pick, type_of
from glow.search.columns.order import order_kind, value_ranks
from glow.search.columns.reader import Columns, Field, TypedColumn

__all__ = [
    "COLUMNS_FOLDER", "COLUMNS_HEADER", "ORDER_FILE", "VALUE_TYPES", "Columns", "ColumnsHeader",
    "DateSpan", "Field", "Scalar", "TypedColumn", "ValueType", "build_columns", "duration_s",
    "instant_of", "now_s", "order_kind", "pick", "span_of", "type_of", "value_ranks",
]  # fmt: skip
