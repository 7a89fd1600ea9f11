"""Shared by the evaluation commands: options, reading of runs and writing of reports."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from glow.commands import option, write_text
from glow.errors import ConfigError, InputError
from glow.evaluation.comparison import Unseen, unseen_queries
from glow.evaluation.judgements import read_judgements
from glow.evaluation.measures import DEFAULT_MEASURES, Evaluation
from glow.evaluation.runs import Run, read_run
from glow.options import StrictModel
from glow.records import Qrel

__all__ = [
    "TOP_K", "MarkdownOptions", "MeasureOptions", "QrelsOptions", "QueryOptions", "RelevanceOptions",
    "ReportOptions", "check_per_query", "emit", "errors", "read_runs", "run_labels", "sibling_split",
    "unseen_part",
]  # fmt: skip

# Twice the cutoff of R@100: fusion needs candidates from below the measured depth.
TOP_K = 200
errors = Console(stderr=True, soft_wrap=True, highlight=False)


class ReportOptions(StrictModel):
    """Where to write a report."""

    json_file: Path | None = option(
        None, "Write the report as JSON; `-` is standard output.", flag="--json", metavar="FILE"
    )


class MarkdownOptions(ReportOptions):
    """Where to write a report that can also be Markdown."""

    markdown_file: Path | None = option(
        None, "Write the report as Markdown; `-` is standard output.", flag="--markdown", metavar="FILE"
    )


class RelevanceOptions(StrictModel):
    """What counts as relevant."""

    rel: int = option(1, "Lowest relevant grade, for RR, R, P and Success.")


class MeasureOptions(RelevanceOptions):
    """What to measure."""

    measures: tuple[str, ...] = option(
        DEFAULT_MEASURES,
        "Measures as ir-measures spells them, NCG@k, ERR@k, or `papers`; separated by spaces, or repeated.",
    )


class QueryOptions(ReportOptions):
    """What to report of single queries."""

    unseen: str | None = option(
        None,
        "Report separately the queries that share no relevant document with a query of SPLIT.",
        metavar="SPLIT",
    )
    per_query: bool = option(False, "Add each query's values to the JSON.")


class QrelsOptions(StrictModel):
    """A file of relevance judgments."""

    qrels: Path = option(..., "Relevance judgments: a BEIR qrels/SPLIT.tsv or a TREC file.", metavar="FILE")


def check_per_query(per_query: bool, json_file: Path | None) -> None:
    """Refuses `--per-query` without a JSON report to hold the values."""
    if per_query and json_file is None:
        raise ConfigError("--per-query adds to the JSON: give --json FILE, or --json - for standard output")


def emit(
    tables: Sequence[Table], json_file: Path | None, text: str, markdown: tuple[Path | None, str] = (None, "")
) -> None:
    """Writes the requested files; standard output gets one of them (`-`), or else the tables."""
    outputs = [(path, body) for path, body in ((json_file, text), markdown) if path is not None]
    shown = [body for path, body in outputs if str(path) == "-"]
    if len(shown) > 1:
        raise ConfigError("standard output takes one report: give --json or --markdown a file")
    for path, body in outputs:
        if str(path) != "-":
            write_text(path, body)
    if shown:
        sys.stdout.write(shown[0])
        return
    for table in tables:
        Console(file=sys.stdout).print(table)


def read_runs(paths: Sequence[Path], qrels: Sequence[Qrel], name: str) -> list[Run]:
    """Reads run files, and refuses one without any judged query.

    Args:
        paths: TREC run files.
        qrels: the relevance judgments.
        name: their name, for the message.
    """
    judged = {qrel.query_id for qrel in qrels}
    runs = []
    for path in paths:
        runs.append(read_run(path))
        if not judged & runs[-1].keys():
            raise InputError(f"{path.name} holds none of the judged queries of {name}")
    return runs


def run_labels(paths: Sequence[Path]) -> list[str]:
    """Names of runs: the file name without its suffix, or the given path if two names would be equal."""
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]


def sibling_split(qrels: Path, split: str) -> list[Qrel]:
    """The judgments of another split, which are beside a judgment file.

    Raises:
        InputError: if they are missing.
    """
    path = qrels.parent / f"{split}{qrels.suffix}"
    if not path.is_file():
        raise InputError(f"there is no {path.name} beside {qrels}: give the name of a split of the same data")
    return read_judgements(path)


def unseen_part(
    evaluation: Evaluation, qrels: Sequence[Qrel], split: str, shown: Sequence[Qrel], rel: int
) -> Unseen:
    """The values of the queries whose relevant documents are not relevant in `split`."""
    return Unseen(split, evaluation.only(unseen_queries(qrels, shown, rel)))
