"""Joins the query log and the feedback log: each search with its hits and its clicks.

A click counts only for a document that its search showed, at the rank in the query log. The rank that the sender
reports is ignored, and so are sources with implausibly many clicks.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from glow.feedback import Feedback
from glow.query_log import LoggedQuery

__all__ = ["Click", "ClickLimits", "Impression", "Joined", "join", "same_query"]

MOST_QUERY_CHARACTERS = 200
"""Longer queries are ignored: other users will not repeat them."""


@dataclass(frozen=True, slots=True)
class ClickLimits:
    """The limits within which a click counts.

    Attributes:
        most_a_day, most: most clicks of one source in a day and in a salt period; a source with more is a bot,
            whose clicks do not count.
        least_dwell_s: shortest dwell time in seconds that counts. Clicks without a dwell time count.
    """

    most_a_day: int = 200
    most: int = 1_000
    least_dwell_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Click:
    """A document that one source chose.

    Attributes:
        rank: the rank at which it was shown, from 1.
        source: the user's pseudonym.
        period: the pseudonym's salt period; users are distinguished only within one.
        is_dislike: whether the user disliked it.
    """

    rank: int
    source: str
    period: str = ""
    is_dislike: bool = False


@dataclass(frozen=True, slots=True)
class Impression:
    """One search: its hits and its clicks.

    Attributes:
        query: normalized by `same_query`.
        hits: ids, best first.
        first: rank of the first hit, from 1.
        clicks: id -> the click on it.
    """

    query: str
    hits: Sequence[str]
    first: int = 1
    clicks: dict[str, Click] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Joined:
    """The searches of a query log with their clicks.

    Attributes:
        searches: in the order of the query log.
        counts: the feedback by outcome: `clicks`, `dislikes`, `unknown` (no such search, or it did not show the
            document), `short` (dwell time too short), `programs` (from bots).
        programs: number of sources that count as bots.
    """

    searches: list[Impression]
    counts: dict[str, int]
    programs: int


def same_query(text: str) -> str:
    """Normalizes a query: NFKC, lower case, single spaces; "" if it is too long."""
    plain = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    return plain if len(plain) <= MOST_QUERY_CHARACTERS else ""


def join(queries: Iterable[LoggedQuery], feedback: Iterable[Feedback], limits: ClickLimits) -> Joined:
    """Assigns clicks to their searches.

    A search with a bot's click is left out. If one source sent several events for one hit, its last judgment and its
    longest dwell time count.

    Args:
        queries: entries of the query log.
        feedback: entries of the feedback log.
        limits: the limits to apply.
    """
    events = list(feedback)
    programs = _programs(events, limits)
    searches: list[Impression] = []
    by_request: defaultdict[str, list[int]] = defaultdict(list)
    for each in queries:
        if query := same_query(each.query):
            by_request[each.request_id].append(len(searches))
            searches.append(Impression(query, each.hits, each.offset + 1))
    counts: Counter[str] = Counter(dict.fromkeys(("clicks", "dislikes", "unknown", "short", "programs"), 0))
    removed: set[int] = set()
    for event in _merged(events):
        found = [
            number for number in by_request.get(event.request_id, ()) if event.id in searches[number].hits
        ]
        if len(found) != 1:  # a batch may have shown it twice, and a client may use a request id again
            counts["unknown"] += 1
        elif event.source in programs:
            counts["programs"] += 1
            removed.add(found[0])
        elif event.dwell_s is not None and event.dwell_s < limits.least_dwell_s and event.kind == "click":
            counts["short"] += 1
        else:
            shown = searches[found[0]]
            is_dislike = event.kind == "dislike"
            rank = shown.first + shown.hits.index(event.id)
            shown.clicks[event.id] = Click(rank, event.source, event.period, is_dislike)
            counts["dislikes" if is_dislike else "clicks"] += 1
    left = [each for number, each in enumerate(searches) if number not in removed]
    return Joined(left, dict(counts), len(programs))


def _programs(events: Sequence[Feedback], limits: ClickLimits) -> set[str]:
    days = Counter((event.source, event.time[:10]) for event in events)
    hasty = {source for (source, _), count in days.items() if count > limits.most_a_day}
    tireless = {
        source for source, count in Counter(event.source for event in events).items() if count > limits.most
    }
    return hasty | tireless


def _merged(events: Iterable[Feedback]) -> list[Feedback]:
    """One event for each source and hit of a search."""
    last: dict[tuple[str, str, str], Feedback] = {}
    for event in events:
        key = (event.request_id, event.id, event.source)
        before = last.get(key)
        if before is None:
            last[key] = event
            continue
        dwells = [each.dwell_s for each in (before, event) if each.dwell_s is not None]
        kind = event.kind if event.kind != "click" else before.kind
        last[key] = replace(event, kind=kind, dwell_s=max(dwells, default=None))
    return list(last.values())
