"""Dates in metadata: ISO 8601 texts as instants in UTC, so that dates of different time zones compare correctly.

`2024-05-01`, `2024-05-01T10:00`, `2024-05-01T10:00:00.5Z`, `2024-05-01T12:00:00+02:00`; a blank may replace the `T`. A time
without a zone is UTC. A date without a time is the start of that day; as a bound, it is the whole day.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["DateSpan", "duration_s", "instant_of", "now_s", "span_of"]

_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
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


def now_s(now: datetime | None = None) -> int:
    """Seconds since 1970 of the last full minute, so that requests within a minute share masks and responses.

    Args:
        now: the time; None: the clock's.
    """
    return int((now or datetime.now(UTC)).timestamp()) // NOW_STEP_S * NOW_STEP_S


def span_of(text: str, now: datetime | None = None) -> DateSpan | None:
    """The meaning of a date in a request; None if the text is not a date.

    Args:
        text: a date as in documents, or `now`, `now-7d`, `now+1h`, with the units of `duration_s`.
        now: the time; None: the clock's.
    """
    if relative := _NOW.fullmatch(text):
        seconds = now_s(now)
        sign, duration = relative.groups()
        if sign:
            seconds += (duration_s(duration) or 0) * (1 if sign == "+" else -1)
        return DateSpan(seconds * 1_000_000, seconds * 1_000_000)
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
    except (
        ValueError,
        OverflowError,
    ):  # a 30th of February, or a year that the time zone moves out of the calendar
        return None
