"""By what a new version is judged before it is published, and the queries for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.errors import ConfigError, InputError
from glow.evaluation import find_tasks, grades_by_query, sample_texts
from glow.query_log import read_query_log

__all__ = ["LIVE", "GateOptions", "GateQueries", "parse_gate", "read_gate_queries"]

LIVE = "live"
"""`--gate live`: compare with the live version alone."""
DEFAULT_SPLIT = "dev"
MOST_QUERIES = 1_000
"""Sampled from a query log: an overlap is known within 0.03, and both versions answer them in seconds."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate's queries and limits; exactly one of `data` and `query_log` is given.

    Attributes:
        data: folder with queries and judgements (BEIR's layout).
        split: judgements, `qrels/SPLIT.tsv`; None: `dev`, or the only one there is.
        query_log: the service's query log, for a comparison without judgements.
        threshold: lowest end that the 95 % interval of the nDCG@10 difference (new - live) may have.
        max_shrink: share of the live version's documents, in [0, 1], that may be missing.
        max_rejects: share of the input's lines, in [0, 1], that may have been rejected.
        min_recall: least share of exact search's top 10, in [0, 1], that the dense index must find.
        min_overlap: least mean share, in [0, 1], of common hits in the top 10 of logged queries.
        force: whether a version that fails is published all the same.
        threads: threads of one encoding.
    """

    data: Path | None = None
    split: str | None = None
    query_log: Path | None = None
    threshold: float = -0.01
    max_shrink: float = 0.2
    max_rejects: float = 0.05
    min_recall: float = 0.95
    min_overlap: float = 0.5
    force: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuses what cannot be judged by.

        Raises:
            ConfigError: both or neither of the sources.
        """
        if (self.data is None) == (self.query_log is None):
            raise ConfigError(
                "the gate needs judged queries (--gate DIR, --data DIR) or --query-log FILE, one of them; "
                f"found {self.data or 'no folder'} and {self.query_log or 'no query log'}"
            )


@dataclass(frozen=True, slots=True)
class GateQueries:
    """What both versions are asked.

    Attributes:
        source: where the queries come from, in a word or two.
        texts: the queries.
        grades: for each query document id -> grade; None without judgements.
    """

    source: str
    texts: tuple[str, ...]
    grades: tuple[Mapping[str, int], ...] | None = None


def parse_gate(gate: str | None, query_log: Path | None, **limits: Any) -> GateOptions | None:
    """The gate of a build, from `--gate DIR|live`; None without.

    Raises:
        ConfigError: `live` without a query log, or a query log that nothing reads.
    """
    if gate is None:
        if query_log is not None or limits.get("force"):
            raise ConfigError("--query-log and --force belong to a gate; add --gate live or --gate DIR")
        return None
    if gate == LIVE and query_log is None:
        raise ConfigError("--gate live compares on what was asked; add --query-log FILE")
    return GateOptions(data=None if gate == LIVE else Path(gate), query_log=query_log, **limits)


def read_gate_queries(options: GateOptions) -> GateQueries:
    """Reads the queries, those with a relevant document where there are judgements.

    Raises:
        InputError: a file cannot be read, or there are fewer than two queries.
    """
    if options.query_log is not None:
        texts = sample_texts((each.query for each in read_query_log(options.query_log)), MOST_QUERIES)
        return _enough(GateQueries("query log", tuple(texts)))
    assert options.data is not None  # noqa: S101 - one of them is given
    task = find_tasks(options.data, [options.split or _default_split(options.data)])[0]
    grades = grades_by_query(task.qrels)
    # A query without a relevant document is 0 in every version, and would only make the interval look narrow.
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
