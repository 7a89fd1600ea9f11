"""The gate publishes a version only if it is good enough, and records its verdict and any override.

The verdict is written to the manifest (`parameters["gate"]`) before `CURRENT` may name the version, so copies include
it. The comparison with the live version runs without the root's lock. If another goes live meanwhile, it is repeated.

q   queries
"""

import getpass
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from glow.artifact import GATE, IndexRoot, failed_checks
from glow.commands import all_cores, option, read_options, say
from glow.errors import BusyError, ConfigError, GateError, InputError
from glow.evaluation import (
    DEPTH,
    VersionSearch,
    compare,
    find_tasks,
    grades_by_query,
    mean_overlap,
    ndcg,
    sample_texts,
)
from glow.index import REPORT_FILE, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.options import StrictModel
from glow.query_log import SkippedLines, read_query_log

LIVE = "live"
"""`--gate live`: compare with the live version, without judged queries."""
DEFAULT_SPLIT = "dev"
MOST_QUERIES = 1_000
"""Sample size from a query log: the overlap is known within 0.03, and both versions answer in seconds."""


class GateLimits(StrictModel):
    """Queries and limits that `build` and `gate` share."""

    query_log: Path | None = option(
        None, "Query log of the service, to compare without relevance judgments.", metavar="FILE"
    )
    split: str | None = option(
        None,
        "Split of the relevance judgments, qrels/SPLIT.tsv; default: dev, or the only one.",
        flag="--gate-split",
    )
    threshold: float = option(
        -0.01,
        "Smallest lower end of the 95 % interval of the nDCG@10 difference (new - live).",
        flag="--gate-threshold",
    )
    max_shrink: float = option(
        0.2, "Largest ratio of missing live documents.", flag="--gate-max-shrink", ge=0.0, le=1.0
    )
    max_rejects: float = option(
        0.05, "Largest ratio of rejected lines.", flag="--gate-max-rejects", ge=0.0, le=1.0
    )
    min_overlap: float = option(
        0.5, "Smallest overlap@10 on logged queries.", flag="--gate-min-overlap", ge=0.0, le=1.0
    )
    force: bool = option(False, "Publish even if the gate refuses; the manifest records who did.")


class GateOptions(GateLimits):
    """The gate's queries and limits; exactly one of `data` and `query_log` is given."""

    data: Path | None = option(None, "Data directory with queries.jsonl and qrels/SPLIT.tsv.", metavar="DIR")
    threads: int | None = option(None, "Threads of encoding; default: all cores.", ge=1)

    min_recall: ClassVar[float] = 0.95
    """Lowest recall@10 of the dense index against exact search."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.query_log is None):
            raise ValueError(
                "the gate needs judged queries (--gate DIR, --data DIR) or --query-log FILE, one of them; "
                f"found {self.data or 'no folder'} and {self.query_log or 'no query log'}"
            )
        return self


@dataclass(frozen=True, slots=True)
class GateQueries:
    """The queries for both versions."""

    source: str
    texts: tuple[str, ...]
    grades: tuple[Mapping[str, int], ...] | None = (
        None  # document id -> grade, of each query; None without judgments
    )


def parse_gate(gate: str | None, limits: GateLimits, threads: int) -> GateOptions | None:
    """The gate of a build, from `--gate DIR|live`; None without."""
    if gate is None:
        if limits.query_log is not None or limits.force:
            raise ConfigError("--query-log and --force require a gate; add --gate live or --gate DIR")
        return None
    if gate == LIVE and limits.query_log is None:
        raise ConfigError("--gate live requires logged queries; add --query-log FILE")
    values = {name: getattr(limits, name) for name in GateLimits.model_fields}
    return read_options(
        GateOptions, {**values, "threads": threads, "data": None if gate == LIVE else Path(gate)}
    )


def read_gate_queries(options: GateOptions) -> GateQueries:
    """Reads the queries; with relevance judgments, only those that have a relevant document."""
    if options.data is not None:
        task = find_tasks(options.data, [options.split or _default_split(options.data)])[0]
        grades = grades_by_query(task.qrels)
        # A query without a relevant document scores 0 in every version, and would only narrow the interval.
        judged = [query for query in task.queries if max(grades[query.id].values()) > 0]
        texts = tuple(query.text for query in judged)
        queries = GateQueries(f"{task.data}/{task.split}", texts, tuple(grades[query.id] for query in judged))
    else:
        skipped = SkippedLines()
        logged = read_query_log(cast(Path, options.query_log), skipped)
        queries = GateQueries("query log", tuple(sample_texts((each.query for each in logged), MOST_QUERIES)))
        if skipped.count:
            say(str(skipped))
    if len(queries.texts) < 2:
        raise InputError(
            f"the gate found {len(queries.texts)} usable queries in {queries.source}, expected two or more"
        )
    return queries


def _default_split(data: Path) -> str:
    splits = sorted(path.stem for path in (data / "qrels").glob("*.tsv"))
    if DEFAULT_SPLIT in splits or not splits:
        return DEFAULT_SPLIT
    if len(splits) > 1:
        raise ConfigError(f"{data}/qrels has {', '.join(splits)}; name one with --gate-split")
    return splits[0]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the gate."""

    name: str
    measured: float
    limit: float  # the smallest (`at_least`) or largest allowed value
    at_least: bool = True  # whether `limit` is the smallest
    figures: Mapping[str, Any] = field(default_factory=dict)  # further values, as JSON

    @property
    def passed(self) -> bool:
        """Whether the version passed this check."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def values(self) -> dict[str, Any]:
        """The check as JSON values."""
        bound = "at_least" if self.at_least else "at_most"
        return {
            "name": self.name,
            "passed": self.passed,
            "found": round(self.measured, 6),
            bound: self.limit,
            **self.figures,
        }

    def words(self) -> str:
        """The check as text."""
        bound = "at least" if self.at_least else "at most"
        return f"{self.name} is {self.measured:.4f}, {bound} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of one version, which is then closed, so that two versions are never in memory at once."""

    ids: Mapping[str, Sequence[tuple[str, ...]]]
    recall: float | None
    counts: Mapping[str, int]
    judged: int


def check_version(new: Path, live: Path | None, queries: GateQueries, options: GateOptions) -> list[Check]:
    """Runs all checks of a new version."""
    result = _search(new, queries, options.threads or all_cores())
    before = _search(live, queries, options.threads or all_cores()) if live else None
    if queries.grades is not None and not result.judged and not (before and before.judged):
        raise InputError(
            f"no relevant document of {queries.source} is in version {new.name} or the live one: "
            "expected relevance judgments of this corpus"
        )
    checks = []
    if result.recall is not None:
        checks.append(Check(f"recall@{DEPTH}", result.recall, options.min_recall))
    rejects, documents = result.counts.get("rejects", 0), result.counts.get("documents", 0)
    share = rejects / max(rejects + documents, 1)
    checks.append(Check("rejects", share, options.max_rejects, at_least=False, figures={"lines": rejects}))
    if before is not None:
        checks += _compared(result, before, queries, options)
    return checks


def _compared(
    results: _Results, before: _Results, queries: GateQueries, options: GateOptions
) -> Iterator[Check]:
    # A corpus without half of its documents may still answer the judged queries.
    for name in ("documents", "passages"):
        now, then = results.counts.get(name), before.counts.get(name)
        if now is not None and then:
            figures: dict[str, Any] = {"new": now, "live": then}
            yield Check(f"{name} lost", max(then - now, 0) / then, options.max_shrink, False, figures)
    # Clients that use the features that the new version lacks would get errors.
    if lost := [name for name in before.ids if name not in results.ids]:
        yield Check("ways to search lost", len(lost), 0, False, {"lost": lost})
    for retriever in (name for name in results.ids if name in before.ids):
        ours, theirs = results.ids[retriever], before.ids[retriever]
        overlap = mean_overlap(theirs, ours)
        if queries.grades is None:
            shared = 1.0 if overlap is None else overlap  # if neither finds anything, nothing became worse
            yield Check(f"overlap@{DEPTH} {retriever}", shared, options.min_overlap)
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
        name = f"nDCG@{DEPTH} {retriever}, low end of the difference"
        yield Check(name, difference.low, options.threshold, figures=figures)


def _values(hits_of: Sequence[tuple[str, ...]], grades: Sequence[Mapping[str, int]]) -> NDArray[np.float64]:
    """nDCG@10 of each query, float64 [q]."""
    pairs = zip(hits_of, grades, strict=True)
    return np.array([ndcg(hits, judged, DEPTH) for hits, judged in pairs], np.float64)


def _search(folder: Path, queries: GateQueries, threads: int) -> _Results:
    index = Index.open(folder, threads=threads)
    search = VersionSearch(index, queries.texts)
    recall = search.recall()
    relevant = {name for grades in queries.grades or () for name, grade in grades.items() if grade > 0}
    return _Results(
        {retriever: search.ids(retriever) for retriever in search.retrievers},
        _built_recall(folder) if recall is None else recall,
        index.manifest.counts,
        sum(row is not None for row in index[STORED_FIELDS].find_all([*relevant])),
    )


def _built_recall(folder: Path) -> float | None:
    """The recall that the build measured while it had the exact vectors; None if its report lacks it."""
    try:
        return float(json.loads((folder / REPORT_FILE).read_bytes())["recall"]["recall"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


TRIES = 3


def judge(root: IndexRoot, version: str, options: GateOptions, *, publish: bool) -> dict[str, Any]:
    """Compares a version with the live one, records the verdict, which it returns, and publishes the version if it passed."""
    root.manifest(version)
    queries = read_gate_queries(options)
    for _ in range(TRIES):
        live = root.live()
        against = None if live == version else live
        beside = None if against is None else root.folder(against)
        checks = check_version(root.folder(version), beside, queries, options)
        with root.locked():
            if root.live() == live:
                return _settle(root, version, against, queries, checks, force=options.force, publish=publish)
    raise BusyError(f"the live version of {root.path} changed {TRIES} times while the gate ran; try again")


def publish_judged(root: IndexRoot, version: str, *, force: bool = False) -> None:
    """Publishes a version unless a gate refused it."""
    root.manifest(version)
    with root.locked():
        manifest = root.manifest(version)
        failed = failed_checks(manifest)
        if force and failed is not None:
            root.amend(version, {GATE: _forced(manifest.parameters[GATE], failed)})
        root.publish(version)


def _settle(
    root: IndexRoot,
    version: str,
    against: str | None,  # the live version that it was compared with; None if there was none
    queries: GateQueries,
    checks: Sequence[Check],
    *,
    force: bool,
    publish: bool,
) -> dict[str, Any]:
    """Records the verdict and acts on it, under the lock."""
    failed = [check for check in checks if not check.passed]
    record: dict[str, Any] = {
        "status": "failed" if failed else "passed",
        "against": against,
        "source": queries.source,
        "queries": len(queries.texts),
        "time": _now(),
        "checks": [check.values() for check in checks],
    }
    if failed and force and publish:
        record = _forced(record, [check.name for check in failed])
    if version not in (root.live(), *root.history()):
        root.amend(version, {GATE: record})
    if failed and not force:
        live = f"{against} stays live" if against else "nothing is live"
        raise GateError(
            f"version {version} is complete but unpublished, {live}: "
            f"{'; '.join(check.words() for check in failed)}; to publish it anyway: "
            f"glow publish --index-root {root.path} {version} --force",
            {GATE: record, "version": version},
        )
    if publish:
        root.publish(version)
    return record


def _forced(record: dict[str, Any], failed: list[str]) -> dict[str, Any]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # in a container, the user's number may have no name
        user = str(os.getuid())
    who = {"user": user, "host": socket.gethostname(), "time": _now(), "failed": failed}
    return {**record, "status": "forced", "override": who}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
