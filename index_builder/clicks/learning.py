"""Turns clicks into query-document pairs that many users clicked, and into hard negatives that they skipped."""

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
    """The limits from which a clicked query counts for a document.

    Attributes:
        least_users: fewest distinct users who clicked it there within one salt period.
        least_rate: lowest fraction of its examinations that led to a click.
        least_share: lowest ratio of that rate to the rate of the query's best document.
        most_negative_share: highest ratio of the same kind that makes an examined document a hard negative.
        least_looks: fewest expected examinations of a negative.
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
        query, id: the query and the document's id.
        users: users who clicked it, minus those who disliked it, in the salt period that has most.
        rate: clicks per expected examination; above 1 if examinations are underestimated.
    """

    query: str
    id: str
    users: int
    rate: float


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of learning from clicks.

    Attributes:
        pairs: grouped by query, best document first.
        negatives: query of a pair -> ids that users examined and did not click.
    """

    pairs: list[Pair]
    negatives: dict[str, list[str]]


def learn(
    searches: Sequence[Impression], counts: Counts, propensities: Propensities, limits: LearnLimits
) -> Learned:
    """Decides about every query and each document shown for it.

    The rate is clicks over expected examinations, sum of c / sum of n * p(rank). While rates are small, it is the
    maximum-likelihood estimate of the position-based model.

    A user's pseudonym changes with each salt period, so users of several periods are never added up. The period with
    most users counts, for clicks and for dislikes.

    Args:
        searches: impressions with their clicks.
        counts: their counts by rank.
        propensities: of the ranks.
        limits: the limits to apply.
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
    """The fewest users that the pseudonyms can belong to: the number in the largest period."""
    return max(Counter(period for period, _ in marks).values(), default=0)
