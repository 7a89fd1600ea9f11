"""Evaluates expressions to row masks: compares whole columns of codes at once, and caches the masks of recent requests."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from glow.index.columns.filters.terms import And, Exists, Expression, Not, OneOf, Or
from glow.index.columns.reader import Columns, Field, TypedColumn
from glow.index.row_mask import RowMask

__all__ = ["FilterMasks", "evaluate"]

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

    Args:
        columns: the index's metadata, or a function that computes the mask of an expression.
        max_bytes: size of the cache; the least recently used entry is removed first.
        tells_filters: whether masks carry their filter, for a vector store that evaluates filters itself.
    """

    def __init__(
        self,
        columns: Columns | Callable[[Expression, Check], RowMask],
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        tells_filters: bool = False,
    ) -> None:
        self._tells_filters = tells_filters
        self._make = _maker(columns) if isinstance(columns, Columns) else columns
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, RowMask] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0

    def mask(self, expression: Expression, check: Check = nothing) -> RowMask:
        """The rows that an expression matches.

        Args:
            expression: checked against these columns.
            check: called before each term; what it raises ends the work.
        """
        key = blake2b(repr(expression).encode(), digest_size=KEY_BYTES).digest()
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None:
                self._kept.move_to_end(key)
                return cached
        # Outside the lock: two threads with the same filter may both compute it, and none waits.
        made = self._make(expression, check)
        if self._tells_filters:
            made.tell(expression)
        with self._lock:
            if key not in self._kept and _cost(made) <= self._max_bytes:
                self._kept[key] = made
                self.size_bytes += _cost(made)
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= _cost(self._kept.popitem(last=False)[1])
        return made


def _cost(mask: RowMask) -> int:
    told = 0 if mask.expression is None else TOLD_BYTES * len(repr(mask.expression))
    return mask.size_bytes + ENTRY_BYTES + told


def _maker(columns: Columns) -> Callable[[Expression, Check], RowMask]:
    return lambda expression, check: RowMask(evaluate(expression, columns, check))


def evaluate(expression: Expression, columns: Columns, check: Check = nothing) -> Mask:
    """The documents that an expression matches, bool [n], a new array.

    Args:
        expression: checked against these columns, or those of an index with this segment.
        columns: n documents.
        check: called before each term; what it raises ends the work.
    """
    check()
    if isinstance(expression, Not):
        return ~evaluate(expression.term, columns, check)
    if isinstance(expression, And | Or):
        join = np.logical_and if isinstance(expression, And) else np.logical_or
        mask = np.full(columns.documents, isinstance(expression, And))
        for term in expression.terms:
            join(mask, evaluate(term, columns, check), mask)
        return mask
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
    found = part.between(expression.low, expression.high, expression.includes_low, expression.includes_high)
    return _of_documents(part, _within(part, found), columns.documents)


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


def _within(part: TypedColumn, wanted: range) -> Mask:
    """Which of a part's codes are in a range of codes >= 1."""
    if not wanted:
        return np.zeros(len(part.codes), np.bool_)
    kind = part.codes.dtype.type
    if len(wanted) == 1:
        hits: Mask = part.codes == kind(wanted.start)
    else:
        # Codes below the range wrap around to large numbers, so one comparison suffices.
        hits = np.subtract(part.codes, kind(wanted.start)) <= kind(len(wanted) - 1)
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
