"""Filters: their terms, and how they are read from JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import isfinite
from typing import Any, NoReturn, TypeAlias

from glow.errors import Fault, FilterError
from glow.index.columns.reader import Columns, Field
from glow.index.columns.values import Scalar, ValueType, span_of, type_of

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
        holds = {_holds(term, world) for term in expression.terms}
        return decides if decides in holds else None if None in holds else not decides
    if isinstance(expression, OneOf) and not expression.values:
        return False
    return world.get(expression)


def negated(term: Expression) -> Expression:
    """The complement; a double complement is removed."""
    return term.term if isinstance(term, Not) else Not(term)


def all_of(terms: Iterable[Expression]) -> Expression:
    """The canonical `And`: flat, sorted, each term once; a single term is returned as it is."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, And) else (term,))]
    distinct = _sorted(flat)
    return distinct[0] if len(distinct) == 1 else And(distinct)


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
    merged = [OneOf(field, kind, _in_order(own)) for (field, kind), own in values.items()]
    terms_found = _sorted([*others, *merged])
    return terms_found[0] if len(terms_found) == 1 else Or(terms_found)


def _sorted(terms: Iterable[Expression]) -> tuple[Expression, ...]:
    return tuple(sorted(set(terms), key=repr))


def _in_order(values: set[Scalar]) -> tuple[Scalar, ...]:
    return tuple(sorted(values))


ID_FIELD = "_id"
"""Stands for a document's id in a filter."""
MAX_DEPTH = 16
MAX_TERMS = 1_000
MAX_FAULTS = 20
SHOWN_FIELDS = 30
SHOWN_CHARACTERS = 80
# Limits of values in documents.
MAX_WHOLE = 2**63 - 1
BOUNDS = ("gt", "gte", "lt", "lte")
CONDITIONS = ("eq", "in", "exists", *BOUNDS)
FIELD = "field"  # of a long condition, `{"field": "price", "eq": 5}`; the short one is `{"price": 5}`
_PLURALS: Mapping[ValueType, str] = {
    "string": "strings",
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates",
}


def count_terms(value: Any) -> int:
    """Number of conditions, groups and values of a filter, valid or not; much cheaper than parsing."""
    terms, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            terms += 1 if FIELD in item else max(1, len(item))
            waiting += [each for each in item.values() if isinstance(each, dict | list)]
        else:
            nested = (
                [each for each in item if isinstance(each, dict | list)] if isinstance(item, list) else []
            )
            terms += len(item) - len(nested) if isinstance(item, list) else 1
            waiting += nested
    return terms


def parse_filter(
    value: Any,
    columns: Columns,
    max_terms: int = MAX_TERMS,  # most conditions, groups and values in all, >= 1
    max_depth: int = MAX_DEPTH,  # most levels of groups, >= 1
    pointer: str = "/filter",  # JSON pointer to the filter, for error messages
) -> Expression:
    """Parses a filter and checks it against the index."""
    parser = _Parser(columns, max_terms, max_depth)
    try:
        expression = parser.node(value, pointer, 1)
    except _Stop as stop:
        raise FilterError(stop.faults) from None
    if parser.faults or expression is None:
        raise FilterError(parser.faults)
    return expression


def field_of(columns: Columns, name: Any, pointer: str) -> Field:
    """The field that a request names."""
    if not isinstance(name, str):
        raise FilterError([Fault(pointer, f"expected the name of a field, found {_shown(name)}")])
    field = columns.fields.get(name)
    if field is None:
        reason = columns.left_out.get(name)
        problem = f"field {_shown(name)} has no column: {reason}" if reason else f"no field {_shown(name)}"
        raise FilterError([Fault(pointer, f"{problem}; {known_fields(columns)}")])
    return field


def known_fields(columns: Columns) -> str:
    """The filterable fields, for people: `known: lang (strings), year (numbers)`."""
    if not columns.fields:
        return "no document of this index has metadata"
    named = (f"{_clipped(name)} ({types_of(field)})" for name, field in columns.fields.items())
    more = len(columns.fields) - SHOWN_FIELDS
    return "known: " + ", ".join(islice(named, SHOWN_FIELDS)) + (f" and {more} more" if more > 0 else "")


def types_of(field: Field) -> str:
    """The types of a field's values: `numbers, strings`; dates are not listed as strings again."""
    return ", ".join(_PLURALS[kind] for kind in field.parts if kind != "string" or "date" not in field.parts)


class _Stop(Exception):
    """Stops the parser at once, with the faults found until then."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__()
        self.faults = faults


class _Parser:
    """Parses one filter; collects faults and continues, up to a limit."""

    def __init__(self, columns: Columns, max_terms: int, max_depth: int) -> None:
        self.faults: list[Fault] = []
        self._columns = columns
        self._max_terms = max_terms
        self._max_depth = max_depth
        self._terms = 0

    def node(self, value: Any, pointer: str, depth: int) -> Expression | None:
        """All members of an object; None if one is invalid."""
        if depth > self._max_depth:
            self._stop(pointer, f"nested deeper than {self._max_depth} levels")
        if not isinstance(value, dict) or not value or FIELD in value:
            return self._tried(pointer, lambda: self._condition(value, pointer))
        terms = [self._member(name, inner, pointer, depth) for name, inner in value.items()]
        return all_of(term for term in terms if term)

    def _tried(self, pointer: str, parse: Callable[[], Expression | None]) -> Expression | None:
        """A counted part; None if it is invalid."""
        self._count(1, pointer)
        try:
            return parse()
        except FilterError as error:
            self.faults += error.faults
            if len(self.faults) >= MAX_FAULTS:
                raise _Stop(self.faults) from error
            return None

    def _member(self, name: str, inner: Any, pointer: str, depth: int) -> Expression | None:
        """A group, or a short condition: `{"price": 5}`, `{"lang": ["en", "de"]}`, `{"year": {"gte": 2020}}`."""
        at = f"{pointer}/{name[:SHOWN_CHARACTERS].replace('~', '~0').replace('/', '~1')}"
        if name in ("and", "or", "not"):
            return self._tried(at, lambda: self._group(name, inner, at, depth))
        return self._tried(at, lambda: self._short(name, inner, pointer, at))

    def _group(self, name: str, inner: Any, at: str, depth: int) -> Expression | None:
        if name == "not":
            term = self.node(inner, at, depth + 1)
            return negated(term) if term else None
        if not isinstance(inner, list):
            raise _refused(at, f"expected a list of filters, found {_shown(inner)}")
        terms = [self.node(item, f"{at}/{place}", depth + 1) for place, item in enumerate(inner)]
        whole = [term for term in terms if term]
        return all_of(whole) if name == "and" else any_of(whole)

    def _short(self, name: str, inner: Any, pointer: str, at: str) -> Expression:
        if name in CONDITIONS and name not in self._columns.fields:
            raise _refused(pointer, f"{name!r} needs a field: {{'price': {{{name!r}: …}}}}")
        if name == ID_FIELD:
            return self._ids(
                inner if isinstance(inner, dict) else {"in" if isinstance(inner, list) else "eq": inner}, at
            )
        field = field_of(self._columns, name, at)
        if isinstance(inner, dict):
            return self._conditions(field, inner, at)
        return self._in(field, inner, at) if isinstance(inner, list) else self._equal(field, inner, at)

    def _condition(self, value: Any, pointer: str) -> Expression:
        if not isinstance(value, dict):
            raise _refused(pointer, f"expected an object, found {_shown(value)}")
        if not value:
            return And(())
        rest = {key: inner for key, inner in value.items() if key != FIELD}
        if value[FIELD] == ID_FIELD:
            return self._ids(rest, pointer)
        field = field_of(self._columns, value[FIELD], f"{pointer}/{FIELD}")
        return self._conditions(field, rest, pointer)

    def _conditions(self, field: Field, value: Mapping[str, Any], pointer: str) -> Expression:
        names = list(value)
        unknown = [key for key in names if key not in CONDITIONS]
        if unknown or not names:
            shown = _shown(unknown[0]) if unknown else "none"
            raise _refused(pointer, f"expected a condition ({', '.join(CONDITIONS)}), found {shown}")
        if all(name in BOUNDS for name in names):
            return self._range(field, value, names, pointer)
        if len(names) != 1:
            raise _refused(pointer, f"expected one condition, found {_keys(value)}; use 'and'")
        at = f"{pointer}/{names[0]}"
        if names[0] == "in":
            return self._in(field, value["in"], at)
        if names[0] == "eq":
            return self._equal(field, value["eq"], at)
        if not isinstance(value["exists"], bool):
            raise _refused(at, f"expected true or false, found {_shown(value['exists'])}")
        return Exists(field.name) if value["exists"] else negated(Exists(field.name))

    def _ids(self, value: Mapping[str, Any], pointer: str) -> Expression:
        (name, *others) = value or ("none",)
        if others or name not in ("eq", "in"):
            raise _refused(
                pointer, f"{ID_FIELD!r} takes 'eq' or 'in', found {', '.join([name, *others])!a:.80}"
            )
        at, ids = f"{pointer}/{name}", [value[name]] if name == "eq" else value[name]
        if not isinstance(ids, list):
            raise _refused(at, f"expected a list of ids, found {_shown(ids)}")
        self._count(len(ids) if name == "in" else 0, at)
        for item in ids:
            if not (_has_utf8(item) if isinstance(item, str) else type(item) is int):
                raise _refused(at, f"expected an id, found {_shown(item)}")
        return OneOf(ID_FIELD, "string", _in_order({str(item) for item in ids}))

    def _in(self, field: Field, values: Any, pointer: str) -> Expression:
        if not isinstance(values, list):
            raise _refused(pointer, f"expected a list of values, found {_shown(values)}")
        self._count(len(values), pointer)
        return any_of(self._equal(field, value, f"{pointer}/{place}") for place, value in enumerate(values))

    def _equal(self, field: Field, value: Any, pointer: str) -> Expression:
        scalar = self._scalar(field, value, pointer)
        span = span_of(scalar) if isinstance(scalar, str) and "date" in field.parts else None
        if span is None:
            return OneOf(field.name, _known_type(scalar), (scalar,))
        return Between(field.name, "date", span.first, span.last, True, True)

    def _range(
        self, field: Field, value: Mapping[str, Any], names: Sequence[str], pointer: str
    ) -> Expression:
        lows, highs = ([name for name in names if name in pair] for pair in (BOUNDS[:2], BOUNDS[2:]))
        if len(lows) > 1 or len(highs) > 1:
            raise _refused(pointer, f"expected at most one bound on each side, found {', '.join(names)}")
        bounds = {name: self._scalar(field, value[name], f"{pointer}/{name}") for name in names}
        if "date" in field.parts and any(isinstance(bound, str) for bound in bounds.values()):
            return self._dates(field, bounds, lows, highs, pointer)
        types = {_known_type(bound) for bound in bounds.values()}
        if types == {"boolean"}:
            raise _refused(pointer, "true and false have no order; use 'eq'")
        if len(types) > 1:
            raise _refused(pointer, "both bounds must be of one type, strings or numbers")
        low, high = (bounds[side[0]] if side else None for side in (lows, highs))
        return Between(field.name, types.pop(), low, high, lows == ["gte"], highs == ["lte"])

    def _dates(
        self, field: Field, bounds: Mapping[str, Scalar], lows: list[str], highs: list[str], pointer: str
    ) -> Expression:
        """A range of instants; a day as a bound is the whole day, so `lte` includes its last moment."""
        spans = {name: span_of(bound) if isinstance(bound, str) else None for name, bound in bounds.items()}
        for name, span in spans.items():
            if span is None:
                raise _refused(
                    f"{pointer}/{name}",
                    f"field {_shown(field.name)} holds dates, found {_shown(bounds[name])}; expected one such as "
                    "'2024', '2024-05-01', '2024-05-01T10:00:00Z' or 'now-7d'",
                )
        dates = {name: span for name, span in spans.items() if span is not None}
        low = next((dates[name].first if name == "gte" else dates[name].last for name in lows), None)
        high = next((dates[name].last if name == "lte" else dates[name].first for name in highs), None)
        return Between(field.name, "date", low, high, lows == ["gte"], highs == ["lte"])

    def _scalar(self, field: Field, value: Any, pointer: str) -> Scalar:
        kind = type_of(value)
        if kind is None:
            hint = "; {'exists': false} asks for documents without" if value is None else ""
            raise _refused(pointer, f"expected a single value, found {_shown(value)}{hint}")
        if kind not in field.parts:
            known = known_fields(self._columns)
            raise _refused(
                pointer, f"field {_shown(field.name)} holds {types_of(field)}, found {_shown(value)}; {known}"
            )
        if kind == "number" and (not isfinite(value) if isinstance(value, float) else abs(value) > MAX_WHOLE):
            raise _refused(pointer, "expected a finite number of at most 64 bits")
        if kind == "string" and not _has_utf8(value):
            raise _refused(pointer, "a lone surrogate is not allowed")
        # 2024.0 is 2024: one number has one form.
        is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= MAX_WHOLE
        scalar: Scalar = int(value) if is_whole else value
        return scalar

    def _count(self, terms: int, pointer: str) -> None:
        self._terms += terms
        if self._terms > self._max_terms:
            self._stop(pointer, f"more than {self._max_terms} conditions, groups and values")

    def _stop(self, pointer: str, detail: str) -> NoReturn:
        raise _Stop([*self.faults, Fault(pointer, detail)])


def _refused(pointer: str, detail: str) -> FilterError:
    return FilterError([Fault(pointer, detail)])


def _known_type(value: Scalar) -> ValueType:
    if isinstance(value, str):
        return "string"
    return "boolean" if isinstance(value, bool) else "number"


def _has_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clipped(name: str) -> str:
    short = name[:SHOWN_CHARACTERS]
    return short if short.isprintable() else ascii(short)


def _keys(value: Mapping[str, Any]) -> str:
    return ", ".join(_shown(key) for key in islice(value, 4)) or "nothing"


def _shown(value: Any) -> str:
    """A value in Python's notation for a message, shortened; it escapes what a terminal would not show."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_WHOLE:
        return "a number of more than 64 bits"  # printing thousands of digits takes time
    names = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return names[value]
    return f"{value[:SHOWN_CHARACTERS]!a}" if isinstance(value, str) else repr(value)
