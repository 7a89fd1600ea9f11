"""Checked filters as JSON values, for who evaluates them in another process: `["or", [["exists", "lang"], …]]`.

What a request says of a day or of `now` is an instant here, so every process reads one filter alike.
"""

from typing import Any

from glow.errors import FormatError
from glow.search.filters.parse import MAX_DEPTH
from glow.search.filters.terms import And, Between, Exists, Expression, Not, OneOf, Or

__all__ = ["expression_from_json", "expression_to_json"]

_TYPES = ("string", "number", "boolean", "date")


def expression_to_json(expression: Expression) -> list[Any]:
    """A filter as JSON values."""
    if isinstance(expression, OneOf):
        return ["one_of", expression.field, expression.type, list(expression.values)]
    if isinstance(expression, Between):
        bounds = [expression.low, expression.high, expression.includes_low, expression.includes_high]
        return ["between", expression.field, expression.type, *bounds]
    if isinstance(expression, Exists):
        return ["exists", expression.field]
    if isinstance(expression, Not):
        return ["not", expression_to_json(expression.term)]
    name = "and" if isinstance(expression, And) else "or"
    return [name, [expression_to_json(term) for term in expression.terms]]


def expression_from_json(value: Any, depth: int = 0) -> Expression:
    """The filter of some JSON values.

    Raises:
        FormatError: if they are none.
    """
    try:
        if depth > 2 * MAX_DEPTH:
            raise ValueError("nested too deep")
        return _read(value, depth)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise FormatError(f"not a filter of this GLOW: {error}; run the same version everywhere") from error


def _read(value: Any, depth: int) -> Expression:
    name, *rest = value
    if name == "one_of":
        field, kind, values = rest
        return OneOf(_text(field), _type(kind), tuple(_scalar(each) for each in values))
    if name == "between":
        field, kind, low, high, includes_low, includes_high = rest
        low, high = (None if bound is None else _scalar(bound) for bound in (low, high))
        return Between(_text(field), _type(kind), low, high, bool(includes_low), bool(includes_high))
    if name == "exists":
        (field,) = rest
        return Exists(_text(field))
    (inner,) = rest
    if name == "not":
        return Not(expression_from_json(inner, depth + 1))
    if name not in ("and", "or"):
        raise ValueError(f"found {name!r:.40}")
    terms = tuple(expression_from_json(each, depth + 1) for each in inner)
    return And(terms) if name == "and" else Or(terms)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a field's name is a string")
    return value


def _type(value: Any) -> Any:
    if value not in _TYPES:
        raise ValueError(f"found the type {value!r:.40}")
    return value


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise TypeError("a value is a string, a number or a boolean")
    return value
