"""Filters in Milvus' language, over the codes of the version's own columns.

For every field and type of value, the collection stores the columns' code of a document's value, or 0 if it has
none. So texts, dates and numbers of any form are compared as usual, in the sorted dictionary of the columns, and
only whole numbers are sent. Fields with lists are left out; a filter on one is not translated.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import Columns, TypedColumn, ValueType
from glow.index.columns.filters import And, Exists, Expression, Not, OneOf, Or

__all__ = ["MAX_TERMS", "FilterFields", "single_parts"]

MAX_TERMS = 2_000
"""Most codes in one expression."""
EVERY, NONE = "row >= 0", "row < 0"
MAX_FIELDS = 60
"""Milvus allows 64 fields per collection."""
Part = tuple[str, ValueType]


def single_parts(columns: Columns) -> dict[Part, TypedColumn]:
    """The parts of fields without lists, those with most documents first."""
    parts = {
        (field.name, kind): part
        for field in columns.fields.values()
        if all(each.offsets is None for each in field.parts.values())
        for kind, part in field.parts.items()
    }
    kept = sorted(parts, key=lambda part: (-parts[part].documents, part))[:MAX_FIELDS]
    whole = {name for name, _ in kept} - {name for name, kind in parts if (name, kind) not in kept}
    return {part: parts[part] for part in kept if part[0] in whole}


class FilterFields:
    """The fields of a collection, and the codes that they hold.

    Args:
        columns: of the version.
        names: of the parts, as in `StoreHeader.fields`; None: those for a new collection.
    """

    def __init__(self, columns: Columns, names: Sequence[str] | None = None) -> None:
        self._columns = columns
        parts = single_parts(columns)
        by_name = {f"{kind}:{field}": (field, kind) for field, kind in parts}
        kept = list(by_name) if names is None else [name for name in names if name in by_name]
        self.names: tuple[str, ...] = tuple(kept)
        order = list(kept) if names is None else list(names)
        self._fields: Mapping[Part, str] = {by_name[name]: f"f{order.index(name)}" for name in kept}
        self._parts = parts

    def codes(self, documents: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The codes of some documents: field -> int64 [m]."""
        return {
            name: self._parts[part].codes[documents].astype(np.int64) for part, name in self._fields.items()
        }

    def translate(self, expression: Expression) -> str | None:
        """The expression in Milvus' language; None if it has no equivalent, or only a very long one."""
        text = self._of(expression)
        return text if text is None or text.count(",") <= MAX_TERMS else None

    def _of(self, expression: Expression) -> str | None:
        if isinstance(expression, Not):
            inner = self._of(expression.term)
            return None if inner is None else f"not ({inner})"
        if isinstance(expression, And | Or):
            inners = [self._of(term) for term in expression.terms]
            if any(inner is None for inner in inners):
                return None
            word = " and " if isinstance(expression, And) else " or "
            empty = EVERY if isinstance(expression, And) else NONE
            return word.join(f"({inner})" for inner in inners) or empty
        field = self._columns.fields.get(expression.field)
        if field is None:
            return NONE
        if not all((field.name, kind) in self._fields for kind in field.parts):
            return None
        if isinstance(expression, Exists):
            return " or ".join(f"{self._fields[field.name, kind]} > 0" for kind in field.parts)
        part = field.parts.get(expression.type)
        if part is None:
            return NONE
        name = self._fields[field.name, expression.type]
        if isinstance(expression, OneOf):
            codes = sorted({code for value in expression.values if (code := part.find(value))})
            return f"{name} in [{', '.join(map(str, codes))}]" if codes else NONE
        found = part.between(
            expression.low, expression.high, expression.includes_low, expression.includes_high
        )
        return f"{name} >= {found.start} and {name} < {found.stop}" if found else NONE
