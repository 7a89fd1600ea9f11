"""Values of metadata: their types, their fields, and dates."""

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Scalar = str | int | float | bool
ValueType = Literal["string", "number", "boolean", "date"]
"""Types of values; a field that only holds dates has its strings also as `date` values, which are instants."""
VALUE_TYPES: tuple[ValueType, ...] = ("string", "number", "boolean")
"""Types of values as output."""

MAX_NAME_CHARACTERS = 256
"""A longer path is ignored: unlimited names would let one document take all memory."""


def field_values(
    metadata: Mapping[str, Any],  # JSON values, nested no deeper than `glow.collection` allows
) -> Iterator[tuple[str, Scalar]]:
    """Yields each value with its field, in the document's order; a list's members one by one."""
    for name, value in metadata.items():
        yield from _walk(name, value)


def pick(metadata: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    """The fields of a document's metadata with the given names, nested as in the document."""
    values: dict[str, Any] = {}
    for key, value in metadata.items():
        below = {name[len(key) + 1 :] for name in names if name.startswith(f"{key}.")}
        if key in names:
            values[key] = value
        elif below and (part := _pick(value, below)) is not None:
            values[key] = part
    return values


def _pick(value: Any, names: Set[str]) -> Any:
    if isinstance(value, list):
        return [part for item in value if (part := _pick(item, names)) is not None] or None
    return pick(value, names) or None if isinstance(value, dict) else None


def type_of(value: object) -> ValueType | None:
    """The type of a single value; None for null, lists and objects. true is not a number."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else None


def _walk(name: str, value: Any) -> Iterator[tuple[str, Scalar]]:
    if len(name) > MAX_NAME_CHARACTERS:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{name}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(name, item)
    elif value is not None:
        yield name, value


_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_PART = re.compile(r"([0-9]{4})(?:-(0[1-9]|1[0-2]))?")
"""A month or a year, in a request only."""
_DURATION = re.compile(r"([0-9]{1,6})([smhdwMy])")
_NOW = re.compile(r"now(?:([+-])([0-9]{1,6}[smhdwMy]))?")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "M": 2_629_746, "y": 31_556_952}
"""In seconds; a month and a year have their mean lengths in the Gregorian calendar."""
_LONGEST = 36
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
NOW_STEP_S = 60


@dataclass(frozen=True, slots=True)
class DateSpan:
    """Meaning of a date in a request: its first and last microsecond since 1970 in UTC."""

    first: int
    last: int


def instant_of(text: str) -> int | None:
    """Microseconds since 1970 in UTC; None if the text is not a date."""
    moment = _moment(text)
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def duration_s(text: str) -> int | None:
    """Seconds of a number and a unit, such as `30d`: units s, m, h, d, w, M, y; None if the text has another form."""
    parsed = _DURATION.fullmatch(text)
    return None if parsed is None else int(parsed[1]) * _UNITS[parsed[2]]


def now_s(
    now: datetime | None = None,  # the time; None: the clock's
) -> int:
    """Seconds since 1970 of the last full minute, so that requests within a minute share masks and responses."""
    return int((now or datetime.now(UTC)).timestamp()) // NOW_STEP_S * NOW_STEP_S


def span_of(
    text: str,  # a date as in documents, a month or year such as `2024-05`, or `now`, `now-7d`, `now+1h`, with the units of `duration_s`
    now: datetime | None = None,  # the time; None: the clock's
) -> DateSpan | None:
    """The meaning of a date in a request; None if the text is not a date."""
    if relative := _NOW.fullmatch(text):
        seconds = now_s(now)
        sign, duration = relative.groups()
        if sign:
            seconds += (duration_s(duration) or 0) * (1 if sign == "+" else -1)
        return DateSpan(seconds * 1_000_000, seconds * 1_000_000)
    if part := _PART.fullmatch(text):
        year, month = part[1], part[2]
        days = monthrange(int(year), int(month or 12))[1] if int(year) else 0
        low, high = span_of(f"{year}-{month or '01'}-01"), span_of(f"{year}-{month or 12}-{days}")
        return DateSpan(low.first, high.last) if low and high else None
    moment = _moment(text)
    if moment is None:
        return None
    first = (moment - _EPOCH) // _MICROSECOND
    is_day = len(text) == len("2024-05-01")
    return DateSpan(first, first + (_DAY // _MICROSECOND - 1 if is_day else 0))


def _moment(text: str) -> datetime | None:
    if len(text) > _LONGEST or not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # a 30th of February, or a year that the time zone moves out of the calendar
