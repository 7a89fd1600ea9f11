"""Rows that a filter matches, and counts of values among them (facets).

n   documents
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import Fault, FilterError
from glow.index.columns.filters import ID_FIELD, And, Exists, Expression, Not, OneOf, Or, field_of
from glow.index.columns.reader import Columns, Field, TypedColumn
from glow.index.columns.values import VALUE_TYPES, Scalar
from glow.index.ranking import RowMask

DEFAULT_MAX_BYTES = 64 << 20
KEY_BYTES = 16
TOLD_BYTES = 8
"""Approximate memory of a filter per character of its text."""
ENTRY_BYTES = 512
"""Memory of an entry besides its mask: the key and the mask object."""
Mask = NDArray[np.bool_]
Check = Callable[[], None]


def nothing() -> None:
    """A check that always passes."""


class FilterMasks:
    """LRU cache of an index's filter masks; safe to use from many threads.

    The key is a digest of the expression, because clients may send long expressions.
    """

    def __init__(
        self,
        # The index's metadata, or a function that computes the mask of an expression
        columns: Columns | Callable[[Expression, Check], RowMask],
        # Size of the cache; the least recently used entry is removed first
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        # Whether masks carry their filter, for a vector store that evaluates filters itself
        tells_filters: bool = False,
    ) -> None:
        self._tells_filters = tells_filters
        self._make = _maker(columns) if isinstance(columns, Columns) else columns
        self._max_bytes = max_bytes
        self._masks: OrderedDict[bytes, RowMask] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0

    def mask(self, expression: Expression, check: Check = nothing) -> RowMask:
        """The rows that an expression matches; `check` is called before each term, and what it raises ends the work."""
        key = blake2b(repr(expression).encode(), digest_size=KEY_BYTES).digest()
        with self._lock:
            cached = self._masks.get(key)
            if cached is not None:
                self._masks.move_to_end(key)
                return cached
        # Outside the lock: two threads with the same filter may both compute it, and none waits.
        rows = self._make(expression, check)
        if self._tells_filters:
            rows.tell(expression)
        with self._lock:
            if key not in self._masks and _cost(rows) <= self._max_bytes:
                self._masks[key] = rows
                self.size_bytes += _cost(rows)
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= _cost(self._masks.popitem(last=False)[1])
        return rows


def _cost(mask: RowMask) -> int:
    text_bytes = 0 if mask.expression is None else TOLD_BYTES * len(repr(mask.expression))
    return mask.size_bytes + ENTRY_BYTES + text_bytes


def _maker(columns: Columns) -> Callable[[Expression, Check], RowMask]:
    return lambda expression, check: RowMask(evaluate(expression, columns, check))


def evaluate(
    expression: Expression,  # checked against these columns, or those of an index with this segment
    columns: Columns,
    check: Check = nothing,  # called before each term; what it raises ends the work
) -> Mask:
    """The documents that an expression matches, bool [n], a new array."""
    check()
    if isinstance(expression, Not):
        return ~evaluate(expression.term, columns, check)
    if isinstance(expression, And | Or):
        join = np.logical_and if isinstance(expression, And) else np.logical_or
        mask = np.full(columns.documents, isinstance(expression, And))
        for term in expression.terms:
            join(mask, evaluate(term, columns, check), mask)
        return mask
    if isinstance(expression, OneOf) and expression.field == ID_FIELD:
        return _with_ids(columns, expression)
    field = columns.fields.get(expression.field)
    if field is None:  # no document of this segment has it
        return np.zeros(columns.documents, np.bool_)
    if isinstance(expression, Exists):
        return _exists(field, columns.documents)
    part = field.parts.get(expression.type)
    if part is None:
        return np.zeros(columns.documents, np.bool_)
    if isinstance(expression, OneOf):
        codes = np.unique([code for value in expression.values if (code := part.find(value))]).astype(
            np.int64
        )
        return _of_documents(part, _among(part, codes), columns.documents)
    span = part.between(expression.low, expression.high, expression.includes_low, expression.includes_high)
    return _of_documents(part, _within(part, span), columns.documents)


def _with_ids(columns: Columns, ids: OneOf) -> Mask:
    mask = np.zeros(columns.documents, np.bool_)
    mask[[row for row in columns.find([str(each) for each in ids.values]) if row is not None]] = True
    return mask


def _exists(field: Field, documents: int) -> Mask:
    mask = np.zeros(documents, np.bool_)
    for part in field.parts.values():
        mask |= part.codes != 0 if part.offsets is None else np.diff(part.offsets) > 0
    return mask


def _among(part: TypedColumn, codes: NDArray[np.int64]) -> Mask:
    """Which of a part's codes are in a sorted list of distinct codes."""
    if not len(codes):
        return np.zeros(len(part.codes), np.bool_)
    if codes[-1] - codes[0] + 1 == len(codes):
        return _within(part, range(int(codes[0]), int(codes[-1]) + 1))
    table = np.zeros(len(part.values) + 1, np.bool_)
    table[codes] = True
    hits: Mask = table[part.codes]
    return hits


def _within(part: TypedColumn, codes: range) -> Mask:
    """Which of a part's codes are in a range of codes >= 1."""
    if not codes:
        return np.zeros(len(part.codes), np.bool_)
    kind = part.codes.dtype.type
    if len(codes) == 1:
        hits: Mask = part.codes == kind(codes.start)
    else:
        # Codes below the range wrap around to large numbers, so one comparison suffices.
        hits = np.subtract(part.codes, kind(codes.start)) <= kind(len(codes) - 1)
    return hits


def _of_documents(part: TypedColumn, hits: Mask, documents: int) -> Mask:
    """Documents with any hit among their values."""
    if part.offsets is None:
        return hits
    mask = np.zeros(documents, np.bool_)
    has_values = np.diff(part.offsets) > 0
    # Documents without a value have no entries, so the starts of the others suffice.
    mask[has_values] = np.logical_or.reduceat(hits, part.offsets[:-1][has_values])
    return mask


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
    """The values of one field."""

    values: tuple[ValueCount, ...]  # by count, largest first, then by value: booleans, numbers, strings
    counted: int  # number of counted documents, including those without the field
    approximate: bool  # whether only some of the search's matches were counted


def parse_facets(value: Any, columns: Columns, pointer: str = "/facets") -> tuple[FacetRequest, ...]:
    """Checks a request's facets, at most 16: `[{"field": "lang", "limit": 10}]`; `pointer` is their place in the request."""
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
    columns: Columns,
    field: str,
    # The documents, as distinct rows int64 [m], or as a mask bool [n]
    rows: NDArray[np.int64] | NDArray[np.bool_],
    limit: int,
    # Documents that the search is about (n, or those that its filter allows); with fewer rows the counts are
    # approximate
    matching: int,
) -> FacetCounts:
    """Counts the values of a field over some documents."""
    documents = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
    segments, counts = columns.segments, list[tuple[int, Scalar]]()
    shown = columns.fields[field].parts.keys() & set(VALUE_TYPES)
    for kind in sorted(shown, key=VALUE_TYPES[::-1].index):
        if len(segments) == 1:
            counts += _top(columns.fields[field].parts[kind], documents, limit)
            continue
        parts = [
            (segment.fields[field].parts[kind], _inside(segment, start, documents))
            for start, segment in segments
            if field in segment.fields and kind in segment.fields[field].parts
        ]
        counts += _top_of_all(parts, limit)
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
    segments: Sequence[tuple[TypedColumn, NDArray[np.int64]]], limit: int
) -> list[tuple[int, Scalar]]:
    """As `_top`, over several segments, the largest first.

    A value that only the first segment has is among the best overall only if it is among the best there. So only the
    best values of the first segment and the values of the others are compared.
    """
    (first, documents), *later = segments
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
        codes = part.codes[documents]
    else:
        starts = part.offsets[documents]
        lengths = part.offsets[documents + 1] - starts
        # Index i of a document's list is its start + i: all indexes of all documents, one after another.
        firsts = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(starts - firsts, lengths)
        codes = part.codes[places]
    counts = np.bincount(codes, minlength=len(part.values) + 1)
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
