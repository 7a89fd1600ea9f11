"""Compares two index versions: documents, hits, words, model and options.

Document stores are compared by id and content in one pass in id order, term statistics in one pass in word order.
So memory does not grow with either.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from glow.evaluation import DEPTH, VersionSearch, mean_overlap, sample_texts
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.text import TermTable, idf_bm25

__all__ = ["Diff", "DocumentsDiff", "IdfDrift", "diff_versions", "sampled_queries"]

SHOWN = 10
"""Most ids and words to list."""
SAMPLED_QUERIES = 200
QUERY_FIELDS = ("title", "clicked_queries")
SEED = 0
QUERY_CHARS = 100
Value = TypeVar("Value")


@dataclass(slots=True)
class DocumentsDiff:
    """Counts of documents, and the first ids in code point order."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    first: dict[str, list[str]] = field(default_factory=lambda: {"added": [], "removed": [], "changed": []})

    def count(self, kind: str, document: str) -> None:
        """Counts one document."""
        setattr(self, kind, getattr(self, kind) + 1)
        if kind in self.first and len(self.first[kind]) < SHOWN:
            self.first[kind].append(document)


@dataclass(frozen=True, slots=True)
class IdfDrift:
    """Changes of word weights (idf, GLOW section 3.5).

    Attributes:
        words_added, words_removed: words that only the new or the old statistics hold.
        mean_change: mean of |idf new - idf old| over the words of both, weighted by their document frequency in both.
        largest: the words that changed most, with `old` and `new` idf.
    """

    words_added: int
    words_removed: int
    mean_change: float
    largest: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between versions `old` and `new`.

    Attributes:
        documents: differences by id and content.
        queries: number of queries for the overlap.
        overlap: retriever -> mean fraction of common hits in the top 10; None if neither finds anything.
        idf: changes of word weights.
        model: `old` and `new` names with short hash if they differ; otherwise empty.
        options: each option that differs -> `old` and `new`.
    """

    old: str
    new: str
    documents: DocumentsDiff
    queries: int
    overlap: dict[str, float | None]
    idf: IdfDrift
    model: dict[str, str]
    options: dict[str, dict[str, Any]]

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        return {"status": "compared", **asdict(self)}


def diff_versions(old: Index, new: Index, texts: Sequence[str]) -> Diff:
    """Compares two open versions.

    Args:
        old, new: the versions.
        texts: queries for the overlap.
    """
    ours, theirs = VersionSearch(new, texts), VersionSearch(old, texts)
    overlap: dict[str, float | None] = {
        retriever: mean_overlap(theirs.ids(retriever, DEPTH), ours.ids(retriever, DEPTH))
        for retriever in ours.retrievers
        if retriever in theirs.retrievers
    }
    return Diff(
        old.version,
        new.version,
        _documents(old, new),
        len(texts),
        overlap,
        idf_drift(old.preprocessor.terms, new.preprocessor.terms),
        {} if old.model == new.model else {"old": old.model, "new": new.model},
        _options(old, new),
    )


def sampled_queries(index: Index) -> list[str]:
    """Titles and clicked queries of a fixed sample of documents, or the start of the text if a document has neither."""
    count = index[STORED_FIELDS].count
    rows = np.random.default_rng(SEED).choice(count, min(SAMPLED_QUERIES, count), replace=False)
    texts = []
    for document in index[STORED_FIELDS].rows(np.sort(rows).tolist()):
        named = [text for name in QUERY_FIELDS for text in document.fields.get(name, ())]
        texts += named or [text[:QUERY_CHARS] for values in document.fields.values() for text in values][:1]
    return sample_texts(texts, SAMPLED_QUERIES)


def idf_drift(old: TermTable, new: TermTable) -> IdfDrift:
    """Compares two versions' term statistics."""
    added = removed = 0
    total = weight = 0.0
    largest: list[tuple[float, str, float, float]] = []
    for word, then, now in _merged(iter(old.items()), iter(new.items())):
        if then is None or now is None:
            added, removed = added + (then is None), removed + (now is None)
            continue
        before, after = (
            float(idf_bm25(df, float(n))) for df, n in ((then, old.documents), (now, new.documents))
        )
        change = abs(after - before)
        total, weight = total + change * (then + now), weight + then + now
        if change:
            entry = (change, word, before, after)
            if len(largest) < SHOWN:
                heapq.heappush(largest, entry)
            else:
                heapq.heappushpop(largest, entry)
    words = [
        {"word": word, "old": round(before, 4), "new": round(after, 4)}
        for _, word, before, after in sorted(largest, reverse=True)
    ]
    return IdfDrift(added, removed, round(total / weight, 6) if weight else 0.0, words)


def _documents(old: Index, new: Index) -> DocumentsDiff:
    diff = DocumentsDiff()
    before = ((identifier, content) for identifier, _, *content in old[STORED_FIELDS].by_id())
    after = ((identifier, content) for identifier, _, *content in new[STORED_FIELDS].by_id())
    for identifier, then, now in _merged(before, after):
        if then is None:
            diff.count("added", identifier)
        elif now is None:
            diff.count("removed", identifier)
        else:
            diff.count("same" if _alike(then, now) else "changed", identifier)
    return diff


def _alike(then: Sequence[str], now: Sequence[str]) -> bool:
    """Whether fields and metadata are equal, regardless of the order of keys."""
    return then == now or [json.loads(each) for each in then] == [json.loads(each) for each in now]


def _merged(
    old: Iterator[tuple[str, Value]], new: Iterator[tuple[str, Value]]
) -> Iterator[tuple[str, Value | None, Value | None]]:
    """Merges two sequences in code point order by key: yields key, old value, new value; None if one lacks the key."""
    then, now = next(old, None), next(new, None)
    while then is not None or now is not None:
        if now is None or (then is not None and then[0] < now[0]):
            assert then is not None  # noqa: S101 - for the type checker
            yield then[0], then[1], None
            then = next(old, None)
        elif then is None or now[0] < then[0]:
            yield now[0], None, now[1]
            now = next(new, None)
        else:
            yield then[0], then[1], now[1]
            then, now = next(old, None), next(new, None)


def _options(old: Index, new: Index) -> dict[str, dict[str, Any]]:
    before, after = (
        {name: value for name, value in index.manifest.parameters.items() if name != "gate"}
        for index in (old, new)
    )
    return {
        name: {"old": before.get(name), "new": after.get(name)}
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }
