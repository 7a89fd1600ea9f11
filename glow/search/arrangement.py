"""Changes to a ranking before its page is cut: boosts, a minimum score, groups, another order.

k   hits
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glow.index import RowMask
from glow.index.columns import Columns, TypedColumn, value_ranks
from glow.index.columns.filters import Expression
from glow.search.retrievers import RankedDocuments

SCORE = "score"
_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class SortKey:
    """A sort key: `score` or a field with a column; documents without a value come last."""

    field: str
    descending: bool


@dataclass(frozen=True, slots=True)
class FilterBoost:
    """Multiplies the score of matching documents by `factor`, > 0; below 1, they rank lower."""

    filter: Expression
    factor: float


@dataclass(frozen=True, slots=True)
class RecencyBoost:
    """Multiplies scores by 1 + `weight` for documents dated now; the excess over 1 halves with every `half_life_s` of age."""

    field: str  # holds dates
    weight: float  # > 0
    half_life_s: float  # seconds, > 0
    now: int  # the time, in seconds since 1970; later dates count as now


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What to do with the matches of a search, in the order of the attributes."""

    boosts: tuple[FilterBoost | RecencyBoost, ...] = ()  # changes of scores
    min_score: float | None = None  # hits that score less are removed; None: all stay
    sort: tuple[SortKey, ...] = ()  # keys other than the score, the most important first; ties by score
    group_by: str = ""  # field of which each value keeps `group_size` hits; hits without a value stay
    group_size: int = 1  # >= 1


def arrange(
    ranked: RankedDocuments, arrangement: Arrangement, columns: Columns, mask: Callable[[Expression], RowMask]
) -> RankedDocuments:
    """Changes scores, removes hits, and sorts and groups the others."""
    scores, rows = ranked.scores.astype(np.float32), ranked.rows
    places = np.arange(len(rows))
    for boost in arrangement.boosts:
        factors = _factors(boost, rows, columns, mask)
        # A negative score, such as a cosine, is divided, so that a factor above 1 always raises it.
        scores = np.where(scores >= 0, scores * factors, scores / factors).astype(np.float32)
    if arrangement.boosts:
        places = np.argsort(-scores, kind="stable")
    if arrangement.min_score is not None:
        places = places[scores[places] >= arrangement.min_score]
    if arrangement.sort:
        places = places[_order(arrangement.sort, scores[places], rows[places], columns)]
    if arrangement.group_by:
        ranks = value_ranks(columns, arrangement.group_by, rows[places])
        places = places[_first_of_groups(ranks.tolist(), arrangement.group_size)]
    return replace(ranked, scores=scores).take(places)


def _factors(
    boost: FilterBoost | RecencyBoost,
    rows: NDArray[np.int64],
    columns: Columns,
    mask: Callable[[Expression], RowMask],
) -> NDArray[np.float64]:
    if isinstance(boost, FilterBoost):
        return np.where(mask(boost.filter).mask[rows], boost.factor, 1.0)
    factors = np.ones(len(rows))
    for start, segment in columns.segments:
        field = segment.fields.get(boost.field)
        part = field.parts.get("date") if field is not None else None
        if part is None:
            continue
        for place in np.flatnonzero((rows >= start) & (rows < start + segment.documents)).tolist():
            latest = _latest(part, int(rows[place]) - start)
            if latest is not None:
                age_s = max(boost.now - latest / _MICROSECONDS, 0.0)
                factors[place] = 1.0 + boost.weight * math.exp2(-age_s / boost.half_life_s)
    return factors


def _latest(part: TypedColumn, row: int) -> float | None:
    """The latest date of a document, in microseconds."""
    first, end = (row, row + 1) if part.offsets is None else part.offsets[row : row + 2].tolist()
    code = int(part.codes[first:end].max(initial=0))
    return float(part.values.key(code - 1)) if code else None


def _order(
    keys: Sequence[SortKey], scores: NDArray[np.float32], rows: NDArray[np.int64], columns: Columns
) -> NDArray[np.int64]:
    """The places in the order of the keys; ties keep the order of their scores."""
    order = np.arange(len(rows))
    for key in reversed(keys):
        if key.field == SCORE:
            values = scores[order].astype(np.float64)
            ascending = -values if key.descending else values
        else:
            ranks = value_ranks(columns, key.field, rows[order], largest=key.descending)
            ascending = np.where(ranks < 0, np.inf, -ranks if key.descending else ranks).astype(np.float64)
        order = order[np.argsort(ascending, kind="stable")]
    return order


def _first_of_groups(ranks: Sequence[int], size: int) -> list[int]:
    """The places of the first hits with each value, and of all without one."""
    counts: dict[int, int] = {}
    places = []
    for place, rank in enumerate(ranks):
        counts[rank] = counts.get(rank, 0) + 1
        if rank < 0 or counts[rank] <= size:
            places.append(place)
    return places
