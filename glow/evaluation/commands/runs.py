"""`python -m glow.evaluation {measure,fuse}`: what is done with TREC run files, whoever made them."""

from pathlib import Path
from typing import Annotated

import typer

from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    TOP_K,
    JsonFile,
    Measures,
    PerQuery,
    Qrels,
    Rel,
    UnseenIn,
    check_per_query,
    emit,
    errors,
    guard,
    read_runs,
    run_labels,
    sibling_split,
    unseen_part,
)
from glow.evaluation.judgements import read_judgements
from glow.evaluation.measures import DEFAULT_MEASURES, check_measures, evaluate, measure_names
from glow.evaluation.report import Report, report_table, reports_json
from glow.evaluation.runs import read_run, write_run
from glow.search import RRF_K, fuse

__all__ = ["fuse_command", "measure_command"]


def measure_command(
    runs: Annotated[list[Path], typer.Argument(help="TREC run files.")],
    qrels: Qrels,
    measures: Measures = list(DEFAULT_MEASURES),  # noqa: B006 - typer copies it and shows it in --help
    rel: Rel = 1,
    unseen: UnseenIn = None,
    per_query: PerQuery = False,
    json_file: JsonFile = None,
) -> None:
    """Measure TREC run files; the queries are those that the judgements name."""

    def work() -> None:
        names = measure_names(measures)
        check_measures(names, rel)
        check_per_query(per_query, json_file)
        judgements = read_judgements(qrels)
        shown = None if unseen is None else sibling_split(qrels, unseen)
        reports = []
        for label, run in zip(run_labels(runs), read_runs(runs, judgements, qrels.name), strict=True):
            evaluation = evaluate(run, judgements, names, rel)
            part = None
            if unseen is not None and shown is not None:
                part = unseen_part(evaluation, judgements, unseen, shown, rel)
            # How deep the file goes tells which cut-offs can be believed.
            options = {"rel": rel, "depth": max(len(hits) for hits in run.values())}
            about = {"run": label, "qrels": qrels.name}
            reports.append(Report(about, label, evaluation, options, part))
        emit([report_table(reports)], json_file, reports_json(reports, per_query=per_query))

    guard(work)


def fuse_command(
    runs: Annotated[list[Path], typer.Argument(help="TREC run files, two or more.")],
    out: Annotated[Path, typer.Option(help="TREC run file to write.")],
    k: Annotated[int, typer.Option("--k", min=0, help="Constant of 1 / (k + rank).")] = RRF_K,
    top_k: Annotated[
        int, typer.Option(min=1, help="Hits of each run that are fused, and hits that are kept.")
    ] = TOP_K,
) -> None:
    """Fuse TREC run files by reciprocal ranks into one."""

    def work() -> None:
        if len(runs) < 2:
            raise ConfigError(f"fusion needs two runs or more, found {len(runs)}")
        read = [read_run(path) for path in runs]
        for path, run in zip(runs[1:], read[1:], strict=True):
            if not run.keys() & read[0].keys():
                raise InputError(f"{path.name} and {runs[0].name} answer no query in common")
        fused = fuse(read, top_k, k)
        write_run(out, fused, f"rrf-{k}")
        errors.print(f"{len(fused)} queries in {out}", markup=False)

    guard(work)
