"""From clicks to pairs of query and document that many people made, and to documents that they passed over."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from glow_index_builder.clicks.propensities import Counts, Propensities
from glow_index_builder.clicks.sessions import Impression

__all__ = ["LearnLimits", "Learned", "Pair", "learn"]

_Mark = tuple[str, str]
"""Period and source."""


@dataclass(frozen=True, slots=True)
class LearnLimits:
    """When a query counts as one of a document.

    Attributes:
        least_users: different people who clicked it there within one salt period.
        least_rate: share of those who looked at it who clicked it.
        least_share: that rate against the best document's of the same query.
        most_negative_share: a document that was looked at and has at most this share of the best one's rate is a hard negative.
        least_looks: times that a negative was looked at, in expectation.
    """

    least_users: int = 3
    least_rate: float = 0.1
    least_share: float = 0.5
    most_negative_share: float = 0.1
    least_looks: float = 3.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and a document that answers it.

    Attributes:
        query, id: of the pair.
        users: people of the salt period that had most who clicked it, less those who disliked it.
        rate: clicks for each look, corrected for rank; above 1 where looks are underestimated.
    """

    query: str
    id: str
    users: int
    rate: float


@dataclass(frozen=True, slots=True)
class Learned:
    """What clicks say.

    Attributes:
        pairs: by query, the best document first.
        negatives: query of a pair -> ids that were looked at and left.
    """

    pairs: list[Pair]
    negatives: dict[str, list[str]]


def learn(
    searches: Sequence[Impression], counts: Counts, propensities: Propensities, limits: LearnLimits
) -> Learned:
    """Decides about every query and document that was shown for it.

    The rate is clicks over expected looks, sum of c / sum of n * p(rank): what the position-based model makes of one document's
    counts by maximum likelihood while rates are small.

    A person has another mark in each salt period, so the marks of several periods are never added up: what counts is the period
    with most people, for clicks and for dislikes.

    Args:
        searches: what was shown and clicked.
        counts: of the same, by rank.
        propensities: of the ranks.
        limits: what is enough.
    """
    users: defaultdict[tuple[str, str], set[_Mark]] = defaultdict(set)
    against: defaultdict[tuple[str, str], set[_Mark]] = defaultdict(set)
    for search in searches:
        for identifier, click in search.clicks.items():
            marks = (against if click.is_dislike else users)[search.query, identifier]
            marks.add((click.period, click.source))
    by_query: defaultdict[str, list[tuple[float, float, int, str]]] = defaultdict(list)
    for (query, identifier), ranks in counts.items():
        looks = sum(times * propensities.at(rank) for rank, (times, _) in ranks.items())
        clicks = sum(clicked for _, clicked in ranks.values())
        support = _people(users[query, identifier]) - _people(against[query, identifier])
        by_query[query].append((clicks / looks if looks else 0.0, looks, support, identifier))
    pairs: list[Pair] = []
    negatives: dict[str, list[str]] = {}
    for query, documents in sorted(by_query.items()):
        supported = [
            each for each in documents if each[2] >= limits.least_users and each[0] >= limits.least_rate
        ]
        if not supported:
            continue
        best = max(rate for rate, *_ in supported)
        good = sorted(each for each in supported if each[0] >= limits.least_share * best)
        pairs += [Pair(query, identifier, support, rate) for rate, _, support, identifier in reversed(good)]
        left = [
            (-looks, identifier)
            for rate, looks, _, identifier in documents
            if looks >= limits.least_looks and rate <= limits.most_negative_share * best
        ]
        negatives[query] = [identifier for _, identifier in sorted(left)]
    return Learned(pairs, negatives)


def _people(marks: set[_Mark]) -> int:
    """How many people there are at least: the marks of the period with most of them."""
    return max(Counter(period for period, _ in marks).values(), default=0)
