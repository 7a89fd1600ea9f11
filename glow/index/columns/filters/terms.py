"""Filters as immutable expressions in one canonical form, so that equivalent spellings are equal and hash alike.

The `repr` of an expression is the same in every process and may be part of a cache key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from glow.index.columns.metadata import Scalar, ValueType

__all__ = [
    "And",
    "Between",
    "Exists",
    "Expression",
    "Not",
    "OneOf",
    "Or",
    "all_of",
    "any_of",
    "negated",
    "restricts_nothing",
]

MOST_CONDITIONS = 10


@dataclass(frozen=True, slots=True)
class OneOf:
    """A field has one of these values, which have one type, sorted and distinct; an empty list matches nothing."""

    field: str
    type: ValueType
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """A field has a string or number within bounds; None is no bound."""

    field: str
    type: ValueType
    low: Scalar | None
    high: Scalar | None
    includes_low: bool
    includes_high: bool


@dataclass(frozen=True, slots=True)
class Exists:
    """A field has any value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The documents that another expression does not match."""

    term: "Expression"


@dataclass(frozen=True, slots=True)
class And:
    """All of these match; an empty list matches every document."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of these matches; an empty list matches nothing."""

    terms: tuple["Expression", ...]


Expression: TypeAlias = OneOf | Between | Exists | Not | And | Or


def restricts_nothing(expression: Expression) -> bool:
    """Whether every possible document matches: for `{"and": []}`, or for a condition combined with its opposite.

    Conditions count as independent of each other. With more than `MOST_CONDITIONS` of them, only empty groups are considered.
    So True is certain, but False is not.
    """
    if _holds(expression, {}):
        return True
    conditions = sorted(_conditions(expression), key=repr)
    if len(conditions) > MOST_CONDITIONS:
        return False
    worlds = product((False, True), repeat=len(conditions))
    return all(_holds(expression, dict(zip(conditions, world, strict=True))) for world in worlds)


def _conditions(expression: Expression) -> set[Expression]:
    if isinstance(expression, Not):
        return _conditions(expression.term)
    if isinstance(expression, And | Or):
        return set[Expression]().union(*(_conditions(term) for term in expression.terms))
    return {expression}


def _holds(expression: Expression, world: Mapping[Expression, bool]) -> bool | None:
    """Whether a document matches if some conditions are known; None if that depends on the others."""
    if isinstance(expression, Not):
        inner = _holds(expression.term, world)
        return None if inner is None else not inner
    if isinstance(expression, And | Or):
        decides = isinstance(expression, Or)
        found = {_holds(term, world) for term in expression.terms}
        return decides if decides in found else None if None in found else not decides
    if isinstance(expression, OneOf) and not expression.values:
        return False
    return world.get(expression)


def negated(term: Expression) -> Expression:
    """The complement; a double complement is removed."""
    return term.term if isinstance(term, Not) else Not(term)


def all_of(terms: Iterable[Expression]) -> Expression:
    """The canonical `And`: flat, sorted, each term once; a single term is returned as it is."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, And) else (term,))]
    found = _sorted(flat)
    return found[0] if len(found) == 1 else And(found)


def any_of(terms: Iterable[Expression]) -> Expression:
    """The canonical `Or`: flat, sorted, each term once, values of one field merged; a single term is returned as it is."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, Or) else (term,))]
    values: dict[tuple[str, ValueType], set[Scalar]] = {}
    others: list[Expression] = []
    for term in flat:
        if isinstance(term, OneOf):
            values.setdefault((term.field, term.type), set()).update(term.values)
        else:
            others.append(term)
    merged = [OneOf(field, kind, _in_order(found)) for (field, kind), found in values.items()]
    terms_found = _sorted([*others, *merged])
    return terms_found[0] if len(terms_found) == 1 else Or(terms_found)


def _sorted(terms: Iterable[Expression]) -> tuple[Expression, ...]:
    return tuple(sorted(set(terms), key=repr))


def _in_order(values: set[Scalar]) -> tuple[Scalar, ...]:
    return tuple(sorted(values))
