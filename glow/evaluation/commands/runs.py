"""`glow measure` and `glow fuse`: work on TREC run files of any system."""

from pathlib import Path

from glow.commands import command, option
from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    TOP_K,
    MeasureOptions,
    QrelsOptions,
    QueryOptions,
    check_per_query,
    emit,
    errors,
    read_runs,
    run_labels,
    sibling_split,
    unseen_part,
)
from glow.evaluation.judgements import read_judgements
from glow.evaluation.measures import check_measures, evaluate, measure_names
from glow.evaluation.report import Report, report_table, reports_json
from glow.evaluation.runs import read_run, write_run
from glow.index import RRF_K
from glow.options import StrictModel
from glow.search import fuse

__all__ = ["fuse_command", "measure_command"]


class MeasureRunsOptions(QueryOptions, MeasureOptions, QrelsOptions):
    """Which runs to measure."""

    runs: tuple[Path, ...] = option(..., "TREC run files.", is_argument=True, metavar="RUN...")


class FuseOptions(StrictModel):
    """Which runs to fuse, and how."""

    runs: tuple[Path, ...] = option(..., "TREC run files, two or more.", is_argument=True, metavar="RUN...")
    out: Path = option(..., "TREC run file to write.", metavar="FILE")
    k: int = option(RRF_K, "Constant of 1 / (k + rank).", ge=0)
    top_k: int = option(TOP_K, "Hits per run to fuse, and to keep.", ge=1)


@command(MeasureRunsOptions)
def measure_command(options: MeasureRunsOptions) -> None:
    """Measures TREC run files over the queries with relevance judgments."""
    names, rel, unseen = measure_names(options.measures), options.rel, options.unseen
    check_measures(names, rel)
    check_per_query(options.per_query, options.json_file)
    judgements = read_judgements(options.qrels)
    shown = None if unseen is None else sibling_split(options.qrels, unseen)
    reports = []
    runs = read_runs(options.runs, judgements, options.qrels.name)
    for label, run in zip(run_labels(options.runs), runs, strict=True):
        evaluation = evaluate(run, judgements, names, rel)
        part = None
        if unseen is not None and shown is not None:
            part = unseen_part(evaluation, judgements, unseen, shown, rel)
        # The depth of the file limits the valid cutoffs.
        figures = {"rel": rel, "depth": max(len(hits) for hits in run.values())}
        about = {"run": label, "qrels": options.qrels.name}
        reports.append(Report(about, label, evaluation, figures, part))
    emit([report_table(reports)], options.json_file, reports_json(reports, per_query=options.per_query))


@command(FuseOptions)
def fuse_command(options: FuseOptions) -> None:
    """Fuses TREC run files by reciprocal ranks into one."""
    paths = options.runs
    if len(paths) < 2:
        raise ConfigError(f"fusion needs two runs or more, found {len(paths)}")
    runs = [read_run(path) for path in paths]
    for path, run in zip(paths[1:], runs[1:], strict=True):
        if not run.keys() & runs[0].keys():
            raise InputError(f"{path.name} and {paths[0].name} have no query in common")
    fused = fuse(runs, options.top_k, options.k)
    write_run(options.out, fused, f"rrf-{options.k}")
    errors.print(f"{len(fused)} queries in {options.out}", markup=False)
