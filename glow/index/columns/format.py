"""The header of an index's columns, `columns/columns.json`: it locates the arrays in `columns/values.bin`.

A field has up to four parts, one per type of its values (dates are also texts). A part has up to four arrays: `codes`,
`offsets` (lists only), and a dictionary: `text` and `ends` of strings; of numbers and booleans `near` and, if float64 is
not exact enough, `rest`. All are in one file, because every mapped file takes one of a process's file handles.
"""

from typing import Annotated, Literal

from pydantic import Field

from glow.index.columns.metadata import ValueType
from glow.options import StrictModel

__all__ = [
    "COLUMNS_FOLDER", "COLUMNS_HEADER", "MAX_FIELDS", "ORDER_FILE", "VALUES_FILE", "ArrayName",
    "ColumnsHeader", "FieldHeader", "PartHeader", "Place",
]  # fmt: skip

COLUMNS_FOLDER = "columns"
COLUMNS_HEADER = "columns.json"
VALUES_FILE = "values.bin"
ORDER_FILE = "order.npy"
MAX_FIELDS = 256
"""Most fields with columns; thousands of keys are data used as names."""

ArrayName = Literal["codes", "offsets", "text", "ends", "near", "rest"]
Count = Annotated[int, Field(ge=0, lt=2**62)]


class Place(StrictModel):
    """Position of an array in `values.bin`."""

    start: Count
    size_bytes: Count


class PartHeader(StrictModel):
    """The values of one type in one field.

    Attributes:
        type: of the values.
        distinct: number of distinct values.
        values: number of values, each counted once per document.
        documents: number of documents with a value of this type.
        has_lists: whether a document has more than one value.
        arrays: positions of its arrays.
    """

    type: ValueType
    distinct: Annotated[int, Field(ge=1, lt=2**32)]
    values: Count
    documents: Count
    has_lists: bool
    arrays: dict[ArrayName, Place]


class FieldHeader(StrictModel):
    """One field: its dotted path, number of documents, and values by type."""

    name: str
    documents: Count
    parts: Annotated[list[PartHeader], Field(min_length=1, max_length=4)]


class ColumnsHeader(StrictModel):
    """`columns.json`.

    Attributes:
        format: format version.
        documents: rows of every column.
        fields: sorted by name.
        left_out: field -> why it has no column; the first thousand by name.
        left_out_fields: total number of those fields, as far as they were counted.
        mixed: fields that hold dates and other texts, and therefore count as texts.
    """

    format: Literal[1]
    documents: Annotated[int, Field(ge=0, lt=2**32)]
    fields: Annotated[list[FieldHeader], Field(max_length=MAX_FIELDS)]
    left_out: dict[str, str]
    left_out_fields: Count
    mixed: list[str] = Field(default_factory=list)
