"""Checks a request's sorting, boosts and grouping against the metadata of the index."""

from glow.errors import FilterError
from glow.index.columns import Columns, duration_s, now_s
from glow.index.columns.filters import field_of, parse_filter
from glow.search import Arrangement, FilterBoost, RecencyBoost, SortKey
from glow_service.errors import Fault, RequestError
from glow_service.search.calls import SearchLimits
from glow_service.search.shapes import BoostBody, SearchBody

__all__ = ["check_arrangement"]

SCORE = "score"


def check_arrangement(body: SearchBody, limits: SearchLimits, columns: Columns) -> Arrangement | None:
    """The requested arrangement of the candidates; None if there is none.

    Raises:
        RequestError: if a boost does not have exactly one of `filter` and `recency`, or a half-life is invalid.
        FilterError: if a field is unknown, or a filter is invalid for the index.
    """
    if (body.min_score, body.sort, body.boosts, body.group_by) == (None, None, None, None):
        return None
    sort, boosts, group = [], [], ""
    for place, key in enumerate(body.sort or ()):
        if key.field != SCORE:
            _require_field(columns, key.field, f"/sort/{place}/field")
        sort.append(SortKey(key.field, key.order == "desc"))
    for place, boost in enumerate(body.boosts or ()):
        boosts.append(_boost(boost, columns, limits, f"/boosts/{place}"))
    if body.group_by is not None:
        group = body.group_by.field
        _require_field(columns, group, "/group_by/field")
    size = body.group_by.size if body.group_by is not None else 1
    return Arrangement(tuple(boosts), body.min_score, tuple(sort), group, size)


def _boost(
    boost: BoostBody, columns: Columns, limits: SearchLimits, pointer: str
) -> FilterBoost | RecencyBoost:
    if (boost.filter is None) == (boost.recency is None):
        detail = "expected exactly one of 'filter' and 'recency'"
        raise RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])
    if boost.filter is not None:
        expression = parse_filter(boost.filter, columns, limits.max_filter_terms, pointer=f"{pointer}/filter")
        return FilterBoost(expression, boost.factor)
    recency = boost.recency
    assert recency is not None  # noqa: S101 - exactly one of both is set
    _require_field(columns, recency.field, f"{pointer}/recency/field")
    if "date" not in columns.fields[recency.field].parts:
        detail = f"field {recency.field!r:.80} has no dates (docs/filters.md explains their format)"
        raise FilterError([Fault(f"{pointer}/recency/field", detail)])
    half_life_s = duration_s(recency.half_life)
    if not half_life_s:
        detail = f"expected a number and a unit such as '30d', found {recency.half_life!r:.40}"
        raise RequestError(
            f"{pointer}/recency/half_life: {detail}", [Fault(f"{pointer}/recency/half_life", detail)]
        )
    return RecencyBoost(recency.field, recency.weight, float(half_life_s), now_s())


def _require_field(columns: Columns, name: str, pointer: str) -> None:
    field_of(columns, name, pointer)
