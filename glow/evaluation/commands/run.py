"""`python -m glow.evaluation run`: search the judged queries with one retriever, and measure what comes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.artifact import default_model
from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    TOP_K,
    JsonFile,
    Measures,
    PerQuery,
    Rel,
    UnseenIn,
    check_per_query,
    emit,
    errors,
    guard,
    sibling_split,
    unseen_part,
)
from glow.evaluation.measures import DEFAULT_MEASURES, check_measures, evaluate, measure_names
from glow.evaluation.report import Report, report_table, reports_json
from glow.evaluation.retrieval import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.evaluation.runs import write_run
from glow.evaluation.task import Task, find_tasks
from glow.runtime import Device, Model
from glow.text import TermStats

__all__ = ["run_command"]


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
    unseen: str | None
    run_file: Path | None


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
        int, typer.Option(min=1, help="Hits kept for each query; hybrid fuses at least 100.")
    ] = TOP_K,
    term_stats: Annotated[
        TermStats, typer.Option(help="Documents that idf comes from: the corpus, the model's own, or both.")
    ] = "corpus",
    device: Annotated[Device, typer.Option(help="Where to encode and search.")] = "cpu",
    threads: Annotated[int, typer.Option(min=0, help="Threads of one encoding; 0 takes all cores.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps document vectors between runs.")
    ] = None,
    unseen: UnseenIn = None,
    run_file: Annotated[
        Path | None,
        typer.Option("--run", help="Write the hits as a TREC run; for one data folder and split."),
    ] = None,
    per_query: PerQuery = False,
    json_file: JsonFile = None,
) -> None:
    """Measure one retriever over the judged queries of one or more splits; each corpus is encoded once."""

    def work() -> None:
        names = measure_names(measures)
        check_measures(names, rel, top_k)
        check_per_query(per_query, json_file)
        tasks = _find_all(data, split, unseen)
        if run_file is not None and sum(len(found) for _, found in tasks) > 1:
            raise ConfigError("--run holds one run: give it with one --data and one --split")
        opened = None if retriever == "lexical" else Model.open(model or default_model())
        dense = DenseOptions(term_stats, device, threads or os.cpu_count() or 1, cache)
        plan = _Plan(opened, tasks, retriever, dense, names, rel, top_k, unseen, run_file)
        reports = [report for folder, found in tasks for report in _measure(plan, folder, found)]
        emit([report_table(reports)], json_file, reports_json(reports, per_query=per_query))

    guard(work)


def _find_all(
    data: Sequence[Path], splits: Sequence[str], unseen: str | None
) -> list[tuple[Path, list[Task]]]:
    tasks = [(folder, find_tasks(folder, splits)) for folder in data]
    found = {task.split for _, some in tasks for task in some}
    if unseen is not None and any(_split_file(folder, unseen).is_file() for folder in data):
        found.add(unseen)
    wanted = [*splits, *([unseen] if unseen is not None else [])]
    missing = [split for split in wanted if split not in found]
    if missing:
        raise InputError(f"no data folder has qrels/{missing[0]}.tsv")
    return tasks


def _split_file(folder: Path, split: str) -> Path:
    return folder / "qrels" / f"{split}.tsv"


def _measure(plan: _Plan, folder: Path, tasks: Sequence[Task]) -> list[Report]:
    retriever = _open(plan, folder)
    options: dict[str, object] = {"rel": plan.rel, "top_k": plan.top_k, "documents": len(retriever.ids)}
    if plan.model is not None:
        options |= {"term_stats": plan.dense.term_stats, "device": plan.dense.device}
    return [_report(plan, folder, task, retriever, options) for task in tasks]


def _report(
    plan: _Plan, folder: Path, task: Task, retriever: Retriever, options: dict[str, object]
) -> Report:
    task.check(retriever.ids)
    run = retriever.search(task.queries, plan.top_k)
    label = plan.model.label if plan.model is not None else None
    if plan.run_file is not None:
        write_run(plan.run_file, run, label or plan.retriever)
    evaluation = evaluate(run, task.qrels, plan.measures, plan.rel)
    unseen = None
    # Another folder may have the split; where it is missing nothing was shown, and there is no part to tell apart.
    if plan.unseen is not None and _split_file(folder, plan.unseen).is_file():
        shown = sibling_split(_split_file(folder, task.split), plan.unseen)
        unseen = unseen_part(evaluation, task.qrels, plan.unseen, shown, plan.rel)
    about = {"model": label, "data": task.data, "split": task.split, "retriever": plan.retriever}
    return Report(about, f"{task.data} {task.split}\n{plan.retriever}", evaluation, options, unseen)


def _open(plan: _Plan, folder: Path) -> Retriever:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task(f"reading {folder.name}", total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, description=f"encoding {folder.name}", completed=done, total=total)

        return open_retriever(plan.retriever, folder, plan.model, plan.dense, show)
