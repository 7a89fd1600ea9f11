"""Facets: how many of some documents have each value of a metadata field."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import Fault, FilterError
from glow.index.columns.filters.parse import field_of
from glow.index.columns.metadata import VALUE_TYPES, Scalar
from glow.index.columns.reader import Columns, TypedColumn

__all__ = [
    "MAX_FACETS", "MAX_VALUES", "FacetCounts", "FacetRequest", "ValueCount", "count_values", "parse_facets",
]  # fmt: skip

MAX_FACETS = 16
MAX_VALUES = 100
DEFAULT_VALUES = 10


@dataclass(frozen=True, slots=True)
class FacetRequest:
    """The field to count, and how many of its values to return, 1 to 100."""

    field: str
    limit: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value and the number of counted documents with it, >= 1."""

    value: Scalar
    count: int


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """The values of one field.

    Attributes:
        values: by count, largest first, then by value: booleans, numbers, strings.
        counted: number of counted documents, including those without the field.
        approximate: whether only some of the search's matches were counted.
    """

    values: tuple[ValueCount, ...]
    counted: int
    approximate: bool


def parse_facets(value: Any, columns: Columns, pointer: str = "/facets") -> tuple[FacetRequest, ...]:
    """Checks a request's facets: `[{"field": "lang", "limit": 10}]`.

    Args:
        value: JSON values; a list of at most 16 objects, each field once.
        columns: the index's metadata.
        pointer: JSON pointer to the facets, for error messages.

    Raises:
        FilterError: if malformed, or if a field is unknown; every fault has its pointer.
    """
    if not isinstance(value, list) or len(value) > MAX_FACETS:
        raise FilterError([Fault(pointer, f"expected a list of at most {MAX_FACETS} facets")])
    faults: list[Fault] = []
    requests: dict[str, FacetRequest] = {}
    for place, item in enumerate(value):
        try:
            facet = _facet(item, columns, f"{pointer}/{place}")
            if facet.field in requests:
                raise FilterError([Fault(f"{pointer}/{place}/field", "each field can be counted once")])
            requests[facet.field] = facet
        except FilterError as error:
            faults += error.faults
    if faults:
        raise FilterError(faults)
    return tuple(requests.values())


def count_values(
    columns: Columns, field: str, rows: NDArray[np.int64] | NDArray[np.bool_], limit: int, matching: int
) -> FacetCounts:
    """Counts the values of a field over some documents.

    Args:
        columns: n documents.
        field: one of its fields.
        rows: the documents, as distinct rows int64 [m], or as a mask bool [n].
        limit: most values to return, 1 to 100.
        matching: documents that the search is about (n, or those that its filter allows); with fewer rows the counts
            are approximate.
    """
    documents = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
    segments, counts = columns.segments, list[tuple[int, Scalar]]()
    shown = columns.fields[field].parts.keys() & set(VALUE_TYPES)
    for kind in sorted(shown, key=VALUE_TYPES[::-1].index):
        if len(segments) == 1:
            counts += _top(columns.fields[field].parts[kind], documents, limit)
            continue
        held = [
            (segment.fields[field].parts[kind], _inside(segment, start, documents))
            for start, segment in segments
            if field in segment.fields and kind in segment.fields[field].parts
        ]
        counts += _top_of_all(held, limit)
    counts.sort(key=lambda pair: -pair[0])
    values = tuple(ValueCount(value, count) for count, value in counts[:limit])
    return FacetCounts(values, len(documents), len(documents) < matching)


def _inside(segment: Columns, start: int, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the documents that are in a segment, as its row numbers."""
    return documents[(documents >= start) & (documents < start + segment.documents)] - start


def _top(part: TypedColumn, documents: NDArray[np.int64], limit: int) -> list[tuple[int, Scalar]]:
    """The most frequent values with their counts, by count, then value."""
    counts = _counts(part, documents)
    codes = np.flatnonzero(counts)
    # Codes are in the order of values, so a stable sort keeps it for equal counts.
    best = codes[np.argsort(-counts[codes], kind="stable")][:limit]
    return [(int(counts[code]), part.values.value(int(code) - 1)) for code in best]


def _top_of_all(
    held: Sequence[tuple[TypedColumn, NDArray[np.int64]]], limit: int
) -> list[tuple[int, Scalar]]:
    """As `_top`, over several segments, the largest first.

    A value that only the first segment has is among the best overall only if it is among the best there. So only the
    best values of the first segment and the values of the others are compared.
    """
    (first, documents), *later = held
    counts = _counts(first, documents)
    added: Counter[Scalar] = Counter()
    for part, rows in later:
        added.update({value: count for count, value in _top(part, rows, len(part.values))})
    totals = {value: count + int(counts[first.find(value)]) for value, count in added.items()}
    totals.update((value, count) for count, value in _top(first, documents, limit) if value not in added)
    ranked = sorted(totals, key=lambda value: (-totals[value], first.values.key_of(value)))
    return [(totals[value], value) for value in ranked[:limit]]


def _counts(part: TypedColumn, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of documents with each code, int64 [d + 1]; 0 for code 0, which means no value."""
    if part.offsets is None:
        held = part.codes[documents]
    else:
        starts = part.offsets[documents]
        lengths = part.offsets[documents + 1] - starts
        # Index i of a document's list is its start + i: all indexes of all documents, one after another.
        firsts = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(starts - firsts, lengths)
        held = part.codes[places]
    counts = np.bincount(held, minlength=len(part.values) + 1)
    counts[0] = 0
    return counts


def _facet(item: Any, columns: Columns, pointer: str) -> FacetRequest:
    if not isinstance(item, dict) or not {"field"} <= item.keys() <= {"field", "limit"}:
        raise FilterError([Fault(pointer, "expected an object with 'field' and, optionally, 'limit'")])
    field = field_of(columns, item["field"], f"{pointer}/field")
    limit = item.get("limit", DEFAULT_VALUES)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_VALUES:
        raise FilterError([Fault(f"{pointer}/limit", f"expected a whole number from 1 to {MAX_VALUES}")])
    return FacetRequest(field.name, limit)
