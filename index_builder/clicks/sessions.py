"""Two logs as one: what each search showed, and what was clicked of it by whom.

A click counts only for a document that its search showed, at the rank where it stood: what the sender says of the rank is not
believed, and neither is one who clicks more than people do.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from glow.feedback import Feedback
from glow.query_log import LoggedQuery

__all__ = ["Click", "ClickLimits", "Impression", "Joined", "join", "same_query"]

MOST_QUERY_CHARACTERS = 200
"""A longer text is nobody's query that others could have, too."""


@dataclass(frozen=True, slots=True)
class ClickLimits:
    """What counts as a click of a person.

    Attributes:
        most_a_day, most: clicks of one mark on one day, and as long as it lasts (one salt period); a mark with more is taken for
            a program, and nothing of it counts.
        least_dwell_s: seconds; who came back sooner did not find it there. Clicks without a dwell count.
    """

    most_a_day: int = 200
    most: int = 1_000
    least_dwell_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Click:
    """A document that one source chose.

    Attributes:
        rank: where it was shown, from 1.
        source: who, as a mark.
        period: of the mark; people are told apart only within one.
        is_dislike: it was judged, and not liked.
    """

    rank: int
    source: str
    period: str = ""
    is_dislike: bool = False


@dataclass(frozen=True, slots=True)
class Impression:
    """One search: what it showed, and what was chosen.

    Attributes:
        query: as `same_query` makes it.
        hits: ids, best first.
        first: rank of the first of them, from 1.
        clicks: id -> the click on it.
    """

    query: str
    hits: Sequence[str]
    first: int = 1
    clicks: dict[str, Click] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Joined:
    """What of two logs belongs together.

    Attributes:
        searches: in the order of the query log.
        counts: what became of the feedback: `clicks`, `dislikes`, `unknown` (no such search, or it did not show the document),
            `short` (of too little dwell), `programs` (of sources with too many clicks).
        programs: how many sources were taken for programs.
    """

    searches: list[Impression]
    counts: dict[str, int]
    programs: int


def same_query(text: str) -> str:
    """A query as those who ask the same write it: NFKC, lower case, single spaces; "" for one that is too long."""
    plain = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    return plain if len(plain) <= MOST_QUERY_CHARACTERS else ""


def join(queries: Iterable[LoggedQuery], feedback: Iterable[Feedback], limits: ClickLimits) -> Joined:
    """Puts clicks to the searches that they came of.

    A search on which a program clicked is left out whole. Of several events of one source for one hit the last judgement and
    the longest dwell count.

    Args:
        queries: of the query log.
        feedback: of the log of feedback.
        limits: what counts.
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
