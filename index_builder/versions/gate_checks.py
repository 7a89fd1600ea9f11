"""The gate's checks: the new version by itself, and compared with the live one on the same queries.

q   queries
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.commands import all_cores
from glow.errors import DocumentNotFoundError, InputError
from glow.evaluation import DEPTH, VersionSearch, compare, mean_overlap, ndcg
from glow.index import REPORT_FILE, Index
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.versions.gate_options import GateOptions, GateQueries

__all__ = ["Check", "check_version"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the gate.

    Attributes:
        name: what is measured.
        found: the measured value.
        limit: the smallest (`at_least`) or largest allowed value.
        at_least: whether `limit` is the smallest.
        figures: further values, as JSON.
    """

    name: str
    found: float
    limit: float
    at_least: bool = True
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the version passed this check."""
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def values(self) -> dict[str, Any]:
        """The check as JSON values."""
        bound = "at_least" if self.at_least else "at_most"
        return {
            "name": self.name,
            "passed": self.passed,
            "found": round(self.found, 6),
            bound: self.limit,
            **self.figures,
        }

    def words(self) -> str:
        """The check as text."""
        return f"{self.name} is {self.found:.4f}, {'at least' if self.at_least else 'at most'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class _Found:
    """The results of one version, which is then closed, so that two versions are never in memory at once."""

    ids: Mapping[str, Sequence[tuple[str, ...]]]
    recall: float | None
    counts: Mapping[str, int]
    judged: int


def check_version(new: Path, live: Path | None, queries: GateQueries, options: GateOptions) -> list[Check]:
    """Runs all checks of a new version.

    Args:
        new: its directory.
        live: directory of the live version; None if there is none, so nothing is compared.
        queries: the queries for both.
        options: the limits.

    Raises:
        ArtifactError: if a version is missing or damaged.
        InputError: if neither version holds a judged document.
    """
    result = _search(new, queries, options.threads or all_cores())
    before = _search(live, queries, options.threads or all_cores()) if live else None
    if queries.grades is not None and not result.judged and not (before and before.judged):
        raise InputError(
            f"no relevant document of {queries.source} is in version {new.name} or the live one: "
            "expected relevance judgments of this corpus"
        )
    checks = [*_alone(result, options)]
    if before is not None:
        checks += _shrink(result, before, options)
        checks += _lost(result, before)
        checks += _compared(result, before, queries, options)
    return checks


def _alone(found: _Found, options: GateOptions) -> Iterator[Check]:
    if found.recall is not None:
        yield Check(f"recall@{DEPTH}", found.recall, options.min_recall)
    rejects, documents = found.counts.get("rejects", 0), found.counts.get("documents", 0)
    share = rejects / max(rejects + documents, 1)
    yield Check("rejects", share, options.max_rejects, at_least=False, figures={"lines": rejects})


def _shrink(found: _Found, before: _Found, options: GateOptions) -> Iterator[Check]:
    """The loss of documents: a corpus without half of them may still answer the judged queries."""
    for name in ("documents", "passages"):
        now, then = found.counts.get(name), before.counts.get(name)
        if now is not None and then:
            figures = {"new": now, "live": then}
            yield Check(f"{name} lost", max(then - now, 0) / then, options.max_shrink, False, figures)


def _lost(found: _Found, before: _Found) -> Iterator[Check]:
    """The features that the live version has and the new one lacks; clients that use them would get errors."""
    if lost := [name for name in before.ids if name not in found.ids]:
        yield Check("ways to search lost", len(lost), 0, False, {"lost": lost})


def _compared(found: _Found, before: _Found, queries: GateQueries, options: GateOptions) -> Iterator[Check]:
    for retriever in (name for name in found.ids if name in before.ids):
        ours, theirs = found.ids[retriever], before.ids[retriever]
        overlap = mean_overlap(theirs, ours)
        if queries.grades is None:
            # If neither finds anything, nothing became worse.
            yield Check(
                f"overlap@{DEPTH} {retriever}", 1.0 if overlap is None else overlap, options.min_overlap
            )
            continue
        difference = compare(_values(theirs, queries.grades), _values(ours, queries.grades))
        figures = {
            "live": round(difference.mean_a, 6),
            "new": round(difference.mean_b, 6),
            "difference": round(difference.difference, 6),
            "high": round(difference.high, 6),
            "p_value": round(difference.p_value, 6),
            "overlap": overlap if overlap is None else round(overlap, 6),
        }
        yield Check(
            f"nDCG@{DEPTH} {retriever}, low end of the difference",
            difference.low,
            options.threshold,
            figures=figures,
        )


def _values(found: Sequence[tuple[str, ...]], grades: Sequence[Mapping[str, int]]) -> NDArray[np.float64]:
    """nDCG@10 of each query, float64 [q]."""
    return np.array(
        [ndcg(hits, judged, DEPTH) for hits, judged in zip(found, grades, strict=True)], np.float64
    )


def _search(folder: Path, queries: GateQueries, threads: int) -> _Found:
    index = Index.open(folder, threads=threads)
    search = VersionSearch(index, queries.texts)
    recall = search.recall()
    return _Found(
        {retriever: search.ids(retriever) for retriever in search.retrievers},
        _built_recall(folder) if recall is None else recall,
        index.manifest.counts,
        sum(_holds(index, document) for document in _relevant(queries)),
    )


def _relevant(queries: GateQueries) -> set[str]:
    return {document for grades in queries.grades or () for document, grade in grades.items() if grade > 0}


def _holds(index: Index, document: str) -> bool:
    try:
        index[STORED_FIELDS].get(document)
    except DocumentNotFoundError:
        return False
    return True


def _built_recall(folder: Path) -> float | None:
    """The recall that the build measured while it had the exact vectors; None if its report lacks it."""
    try:
        return float(json.loads((folder / REPORT_FILE).read_bytes())["recall"]["recall"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
