"""Metadata by field: the columns for filters and facets."""

from glow.index.columns.build import build_columns
from glow.index.columns.component import COLUMNS, join_columns
from glow.index.columns.reader import (
    COLUMNS_FOLDER,
    MAX_FIELDS,
    ORDER_FILE,
    Columns,
    ColumnsHeader,
    TypedColumn,
    value_ranks,
)
from glow.index.columns.values import (
    MAX_NAME_CHARACTERS,
    ValueType,
    duration_s,
    field_values,
    instant_of,
    now_s,
    pick,
    span_of,
    type_of,
)

__all__ = [
    "COLUMNS", "COLUMNS_FOLDER", "MAX_FIELDS", "MAX_NAME_CHARACTERS", "ORDER_FILE", "Columns",
    "ColumnsHeader", "TypedColumn", "ValueType", "build_columns", "duration_s", "field_values", "instant_of",
    "join_columns", "now_s", "pick", "span_of", "type_of", "value_ranks",
]  # fmt: skip
