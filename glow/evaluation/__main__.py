"""Command line of evaluation: `python -m glow.evaluation {run,compare}`."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from glow.artifact import default_model
from glow.collection import read_qrels
from glow.errors import ConfigError, GlowError, InputError
from glow.evaluation.measures import DEFAULT_MEASURES, check_measures, evaluate
from glow.evaluation.report import Report, comparison_json, comparison_table, report_table, reports_json
from glow.evaluation.retrieve import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.evaluation.runs import read_run, write_run
from glow.evaluation.significance import SAMPLES, compare
from glow.evaluation.task import Task, find_tasks
from glow.runtime import Device, Model
from glow.text import TermStats

# Twice as deep as R@100 looks: fusion needs candidates from below the depth at which it is measured.
TOP_K = 200

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    # Plain tracebacks: a bug's report must not print whole corpora from local variables.
    pretty_exceptions_enable=False,
    help="Measure retrieval quality over BEIR folders, and compare runs.",
)
_errors = Console(stderr=True, soft_wrap=True, highlight=False)

Measures = Annotated[
    list[str],
    typer.Option(
        "--measures", help="Measures as ir-measures spells them, and NCG@k; in one string or several times."
    ),
]
Rel = Annotated[
    int, typer.Option("--rel", help="Lowest relevant grade, for RR, R, P, Success and their like.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the report as JSON; `-` is standard output.")
]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What `run` was asked to do, checked."""

    model: Model | None
    tasks: Sequence[tuple[Path, Sequence[Task]]]
    retriever: RetrieverKind
    dense: DenseOptions
    measures: Sequence[str]
    rel: int
    top_k: int


@app.command("run")
def run_command(
    data: Annotated[list[Path], typer.Option(help="BEIR folder; may be given several times.")],
    split: Annotated[
        list[str], typer.Option(help="Judgements, qrels/SPLIT.tsv; may be given several times.")
    ],
    model: Annotated[
        Path | None, typer.Option(help="Model folder; default: the one that models/DEFAULT names.")
    ] = None,
    retriever: Annotated[RetrieverKind, typer.Option(help="What searches.")] = "dense",
    measures: Measures = list(DEFAULT_MEASURES),  # noqa: B006 - typer copies it and shows it in --help
    rel: Rel = 1,
    top_k: Annotated[
        int, typer.Option(min=1, help="Hits kept for each query; hybrid fuses as many.")
    ] = TOP_K,
    term_stats: Annotated[
        TermStats, typer.Option(help="Documents that idf comes from: the corpus, the model's own, or both.")
    ] = "corpus",
    device: Annotated[Device, typer.Option(help="Where to encode and search.")] = "cpu",
    threads: Annotated[int, typer.Option(min=0, help="Threads of one encoding; 0 takes all cores.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps document vectors between runs.")
    ] = None,
    run_file: Annotated[
        Path | None,
        typer.Option("--run", help="Write the hits as a TREC run; for one data folder and split."),
    ] = None,
    per_query: Annotated[
        bool, typer.Option("--per-query", help="Add each query's values to the JSON.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure one retriever over the judged queries of one or more splits; each corpus is encoded once."""

    def work() -> None:
        names = _names(measures)
        check_measures(names, rel, top_k)
        tasks = _find_all(data, split)
        if run_file is not None and sum(len(found) for _, found in tasks) > 1:
            raise ConfigError("--run holds one run: give it with one --data and one --split")
        opened = None if retriever == "lexical" else Model.open(model or default_model())
        dense = DenseOptions(term_stats, device, threads or os.cpu_count() or 1, cache)
        plan = _Plan(opened, tasks, retriever, dense, names, rel, top_k)
        reports = [report for folder, found in tasks for report in _measure(plan, folder, found, run_file)]
        _emit(json_file, reports_json(reports, per_query=per_query), report_table(reports))

    _guard(work)


@app.command("compare")
def compare_command(
    run_a: Annotated[Path, typer.Argument(help="TREC run file.")],
    run_b: Annotated[Path, typer.Argument(help="TREC run file to compare with it.")],
    qrels: Annotated[Path, typer.Option(help="Judgements, a BEIR qrels/SPLIT.tsv.")],
    measures: Measures = list(DEFAULT_MEASURES),  # noqa: B006 - typer copies it and shows it in --help
    rel: Rel = 1,
    samples: Annotated[int, typer.Option(min=1, help="Resamples of each method.")] = SAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Compare two runs query by query: difference, its 95 % bootstrap interval, and a randomisation test."""

    def work() -> None:
        names = _names(measures)
        judgements = list(read_qrels(qrels))
        judged = {qrel.query_id for qrel in judgements}
        evaluations = []
        for path in (run_a, run_b):
            run = read_run(path)
            if not judged & run.keys():
                raise InputError(f"{path.name} answers none of the queries that {qrels.name} judges")
            evaluations.append(evaluate(run, judgements, names, rel))
        a, b = evaluations
        found = {name: compare(a.values[name], b.values[name], samples, seed) for name in a.values}
        _emit(json_file, comparison_json(found), comparison_table(found))

    _guard(work)


def _names(measures: Sequence[str]) -> list[str]:
    """`--measures "RR@10 NCG@20"` and `--measures RR@10 --measures NCG@20` mean the same."""
    return [name for value in measures for name in value.split()]


def _find_all(data: Sequence[Path], splits: Sequence[str]) -> list[tuple[Path, list[Task]]]:
    tasks = [(folder, find_tasks(folder, splits)) for folder in data]
    found = {task.split for _, some in tasks for task in some}
    missing = [split for split in splits if split not in found]
    if missing:
        raise InputError(f"no data folder has qrels/{missing[0]}.tsv")
    return tasks


def _measure(plan: _Plan, folder: Path, tasks: Sequence[Task], run_file: Path | None) -> list[Report]:
    retriever = _open(plan, folder)
    label = plan.model.label if plan.model is not None else None
    options: dict[str, object] = {"rel": plan.rel, "top_k": plan.top_k, "documents": len(retriever.ids)}
    if plan.model is not None:
        options |= {"term_stats": plan.dense.term_stats, "device": plan.dense.device}
    reports = []
    for task in tasks:
        task.check(retriever.ids)
        run = retriever.search(task.queries, plan.top_k)
        if run_file is not None:
            write_run(run_file, run, label or plan.retriever)
        evaluation = evaluate(run, task.qrels, plan.measures, plan.rel)
        reports.append(Report(label, task, plan.retriever, evaluation, options))
    return reports


def _open(plan: _Plan, folder: Path) -> Retriever:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_errors, transient=True) as progress:
        task = progress.add_task(f"reading {folder.name}", total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, description=f"encoding {folder.name}", completed=done, total=total)

        return open_retriever(plan.retriever, folder, plan.model, plan.dense, show)


def _emit(path: Path | None, text: str, table: Table) -> None:
    """JSON to standard output alone, or the table there and JSON in a file."""
    if path is not None and str(path) == "-":
        sys.stdout.write(text)
        return
    Console(file=sys.stdout).print(table)
    if path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error


def _guard(work: Callable[[], None]) -> None:
    """Runs a command; what GLOW raises on purpose becomes one line and exit code 2."""
    try:
        work()
    except GlowError as error:
        _errors.print(f"[red]error[/red] ({error.code}):", end=" ")
        _errors.print(str(error), markup=False)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()
