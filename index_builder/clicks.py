"""`glow learn-clicks`: reads the query log and the feedback log, and writes documents with new clicked queries.

A click counts only for a document that its search showed. A query becomes a clicked query of a document if enough
people clicked it there, in one salt period, as people have another pseudonym in each.
"""

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot, disk_error
from glow.commands import IndexRootOptions, JsonOptions, command, counted, option, say, write_report
from glow.errors import ConfigError, InputError
from glow.index import MODEL_FOLDER, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.query_log import Feedback, LoggedQuery, SkippedLines, read_feedback, read_query_log
from glow.records import Document
from glow.schema import FieldSchema

FIELD = "clicked_queries"
MAX_QUERY_CHARACTERS = 200
"""Longer queries are ignored: other people will not repeat them."""
MIN_DWELL_S = 5.0
"""A click that the user left sooner does not count; one without a dwell time does."""


class LearnOptions(JsonOptions, IndexRootOptions):
    """Which logs to learn from, and what is enough."""

    query_log: tuple[Path, ...] = option(..., "Query log of the service; repeatable.", metavar="FILE")
    feedback_log: tuple[Path, ...] = option(..., "Feedback log of the service; repeatable.", metavar="FILE")
    out: Path = option(..., "Documents with new clicked queries, for `glow upsert`.", metavar="FILE")
    min_users: int = option(
        3, "Fewest people who clicked a document for a query, within one salt period.", ge=1
    )


@command(LearnOptions)
def learn_command(options: LearnOptions) -> None:
    """Learns from clicks: writes documents with new clicked queries."""
    root = IndexRoot(options.index_root)
    folder = root.folder(root.current())
    fields = {spec.name: spec for spec in FieldSchema.load(folder / MODEL_FOLDER / "schema.json").fields}
    if FIELD not in fields:
        raise ConfigError(
            f"the model of {folder.name} reads no field {FIELD!r}; it reads {', '.join(fields)}"
        )
    skipped = SkippedLines()
    queries = chain.from_iterable(read_query_log(path, skipped) for path in options.query_log)
    feedback = chain.from_iterable(read_feedback(path, skipped) for path in options.feedback_log)
    clicks = count_clicks(queries, feedback)
    if skipped.count:
        say(str(skipped))
    if not clicks.counts["clicks"]:
        raise InputError(
            f"no click matches a logged search ({clicks.counts['unknown']} unmatched); "
            "use logs of the same service and period, or raise query_log_sample_rate"
        )
    queries_of = clicks.queries_of(options.min_users)
    documents = Index.open(folder, threads=1)[STORED_FIELDS].scan()
    changed, new = write_documents(options.out, documents, queries_of, fields[FIELD].max_values)
    report: dict[str, Any] = {
        "status": "learned",
        "version": folder.name,
        "searches": clicks.searches,
        "skipped_lines": skipped.count,
        "feedback": clicks.counts,
        "pairs": sum(map(len, queries_of.values())),
        "documents": {"changed": changed, "new_queries": new},
    }
    write_report(options.json_file, report)
    say(
        f"{counted(clicks.counts['clicks'], 'click')} in {clicks.searches} searches count; {clicks.counts['short']} were too short, "
        f"{clicks.counts['unknown']} unmatched\n"
        f"{counted(changed, 'document')} with {new} new clicked queries: {options.out}, for glow upsert"
    )


@dataclass(slots=True)
class Clicks:
    """What people did with the hits of each query."""

    searches: int
    counts: dict[str, int]  # events by outcome: `clicks`, `dislikes`, `short`, `unknown`
    people: dict[tuple[str, str], "People"]  # by query and document id

    def queries_of(self, min_users: int) -> dict[str, list[str]]:
        """The learned queries of each document, those of most people first."""
        pairs = [(-each.support(), query, name) for (query, name), each in self.people.items()]
        learned: defaultdict[str, list[str]] = defaultdict(list)
        for support, query, name in sorted(pairs):
            if -support >= min_users:
                learned[name].append(query)
        return dict(learned)


@dataclass(slots=True)
class People:
    """The people who chose one document for one query, and those who disliked it, as pairs of period and pseudonym."""

    chose: set[tuple[str, str]] = field(default_factory=set)
    disliked: set[tuple[str, str]] = field(default_factory=set)

    def support(self) -> int:
        """The fewest people who chose it, minus the fewest who disliked it."""
        return _fewest(self.chose) - _fewest(self.disliked)


def _fewest(people: set[tuple[str, str]]) -> int:
    """The number in the largest period: the same people may be in all others."""
    return max(Counter(period for period, _ in people).values(), default=0)


def count_clicks(queries: Iterable[LoggedQuery], feedback: Iterable[Feedback]) -> Clicks:
    """Assigns feedback to its searches, and counts people by query and document."""
    shown: defaultdict[str, list[LoggedQuery]] = defaultdict(list)
    searches = 0
    for each in queries:
        if same_query(each.query):
            shown[each.request_id].append(each)
            searches += 1
    counts = dict.fromkeys(("clicks", "dislikes", "short", "unknown"), 0)
    people: defaultdict[tuple[str, str], People] = defaultdict(People)
    for event in _one_per_hit(feedback):
        texts = [each.query for each in shown.get(event.request_id, ()) if event.id in each.hits]
        if len(texts) != 1:  # a batch may have shown it twice, and a client may use a request id again
            counts["unknown"] += 1
            continue
        here, person = people[same_query(texts[0]), event.id], (event.period, event.source)
        if event.kind == "dislike":
            here.disliked.add(person)
            counts["dislikes"] += 1
        elif event.kind == "click" and event.dwell_s is not None and event.dwell_s < MIN_DWELL_S:
            counts["short"] += 1
        else:
            here.chose.add(person)
            counts["clicks"] += 1
    return Clicks(searches, counts, dict(people))


def same_query(text: str) -> str:
    """Normalizes a query: NFKC, lower case, single spaces; "" if it is too long."""
    plain = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    return plain if len(plain) <= MAX_QUERY_CHARACTERS else ""


def _one_per_hit(feedback: Iterable[Feedback]) -> Iterator[Feedback]:
    """One event for each person and hit of a search, with the last judgment and the longest dwell time."""
    events: dict[tuple[str, str, str, str], Feedback] = {}
    for event in feedback:
        key = (event.request_id, event.id, event.period, event.source)
        before = events.get(key, event)
        dwells = [each.dwell_s for each in (before, event) if each.dwell_s is not None]
        kind = event.kind if event.kind != "click" else before.kind
        events[key] = replace(event, kind=kind, dwell_s=max(dwells, default=None))
    return iter(events.values())


def write_documents(
    path: Path, documents: Iterable[Document], queries_of: Mapping[str, list[str]], max_queries: int | None
) -> tuple[int, int]:
    """Writes the documents with new clicked queries, as many as the model reads; returns their number and that of the queries."""
    changed = new = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for document in documents:
                before = document.fields.get(FIELD, ())
                learned = queries_of.get(document.id, [])
                queries = tuple(dict.fromkeys((*learned, *before)))[:max_queries]
                if not learned or queries == before[:max_queries]:
                    continue
                changed += 1
                new += len(set(queries) - set(before))
                fields = {**document.fields, FIELD: queries}
                values = {name: list(texts) for name, texts in fields.items() if texts}
                line = {"_id": document.id, **values, **document.metadata}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        raise disk_error(path, error) from error
    return changed, new
