"""The options and queries of the gate, which judges a new version before it is published."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from glow.commands import option, read_options, say
from glow.errors import ConfigError, InputError
from glow.evaluation import find_tasks, grades_by_query, sample_texts
from glow.options import StrictModel
from glow.query_log import SkippedLines, read_query_log

__all__ = ["LIVE", "GateLimits", "GateOptions", "GateQueries", "parse_gate", "read_gate_queries"]

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
    """The queries for both versions.

    Attributes:
        source: a short name of their source.
        texts: the queries.
        grades: for each query, document id -> grade; None without relevance judgments.
    """

    source: str
    texts: tuple[str, ...]
    grades: tuple[Mapping[str, int], ...] | None = None


def parse_gate(gate: str | None, limits: GateLimits, threads: int) -> GateOptions | None:
    """The gate of a build, from `--gate DIR|live`; None without.

    Raises:
        ConfigError: if `live` comes without a query log, or a query log or `force` without a gate.
    """
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
    """Reads the queries; with relevance judgments, only those that have a relevant document.

    Raises:
        InputError: if a file cannot be read, or there are fewer than two queries.
    """
    if options.query_log is not None:
        skipped = SkippedLines()
        logged = read_query_log(options.query_log, skipped)
        texts = sample_texts((each.query for each in logged), MOST_QUERIES)
        if skipped.count:
            say(str(skipped))
        return _enough(GateQueries("query log", tuple(texts)))
    assert options.data is not None  # noqa: S101 - one of them is given
    task = find_tasks(options.data, [options.split or _default_split(options.data)])[0]
    grades = grades_by_query(task.qrels)
    # A query without a relevant document scores 0 in every version, and would only narrow the interval.
    asked = [query for query in task.queries if max(grades[query.id].values()) > 0]
    texts = [query.text for query in asked]
    return _enough(
        GateQueries(f"{task.data}/{task.split}", tuple(texts), tuple(grades[query.id] for query in asked))
    )


def _enough(queries: GateQueries) -> GateQueries:
    if len(queries.texts) < 2:
        raise InputError(
            f"the gate found {len(queries.texts)} usable queries in {queries.source}, expected two or more"
        )
    return queries


def _default_split(data: Path) -> str:
    splits = sorted(path.stem for path in (data / "qrels").glob("*.tsv"))
    if DEFAULT_SPLIT in splits or len(splits) != 1:
        if DEFAULT_SPLIT not in splits and splits:
            raise ConfigError(f"{data}/qrels has {', '.join(splits)}; name one with --gate-split")
        return DEFAULT_SPLIT
    return splits[0]
