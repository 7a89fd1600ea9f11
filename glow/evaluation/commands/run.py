"""`glow evaluate`: searches the judged queries with one retriever, and measures the hits."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.artifact import default_model
from glow.commands import command, option, shown_progress
from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    TOP_K,
    MeasureOptions,
    QueryOptions,
    check_per_query,
    emit,
    sibling_split,
    unseen_part,
)
from glow.evaluation.foreign_data import data_folder
from glow.evaluation.measures import check_measures, evaluate, measure_names
from glow.evaluation.report import Report, report_table, reports_json
from glow.evaluation.retrieval import DenseOptions, Retriever, RetrieverKind, open_retriever, open_version
from glow.evaluation.runs import write_run
from glow.evaluation.task import Task, find_tasks
from glow.runtime import Device, Model, RerankMethod
from glow.search import MAX_DEPTH, Reranking
from glow.text import DEFAULT_ANALYZER, AnalyzerName, TermStats

__all__ = ["run_command"]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked request of `run`."""

    model: Model | None
    tasks: Sequence[tuple[Path, Sequence[Task]]]
    retriever: RetrieverKind
    dense: DenseOptions
    measures: Sequence[str]
    rel: int
    top_k: int
    unseen: str | None
    run_file: Path | None
    index_root: Path | None
    reranking: Reranking | None


class RunOptions(QueryOptions, MeasureOptions):
    """What to search, with which retriever, and how to measure it."""

    data: tuple[Path, ...] = option(
        ..., "Data directory in BEIR format, or irds:NAME of ir_datasets; repeatable.", metavar="DIR"
    )
    split: tuple[str, ...] = option(..., "Split of the relevance judgments, qrels/SPLIT.tsv; repeatable.")
    model: Path | None = option(
        None, "Model directory; default: the one that models/DEFAULT names.", metavar="DIR"
    )
    index_root: Path | None = option(
        None, "Measure the live version of this index as it is served, instead of a corpus in memory."
    )
    retriever: RetrieverKind = option("dense", "Retriever.")
    rerank: int = option(
        0,
        "Hits to re-rank, as a request with `rerank` does; 0: none.",
        ge=0,
        le=MAX_DEPTH,
    )
    rerank_method: RerankMethod = option("cross-encoder", "Re-ranking method.")
    top_k: int = option(TOP_K, "Hits per query; hybrid fuses at least 100.", ge=1)
    term_stats: TermStats = option("corpus", "Source of idf: the corpus, the model's own documents, or both.")
    analyzer: AnalyzerName = option(DEFAULT_ANALYZER, "Analyzer of lexical search.")
    device: Device = option("cpu", "Device that encodes and searches.")
    threads: int = option(0, "Threads of encoding; 0: all cores.", ge=0)
    cache: Path | None = option(None, "Directory that keeps document vectors between runs.", metavar="DIR")
    run_file: Path | None = option(
        None,
        "Write the hits as a TREC run; needs one data directory and split.",
        flag="--run",
        metavar="FILE",
    )


@command(RunOptions)
def run_command(options: RunOptions) -> None:
    """Measures one retriever over the judged queries of one or more splits; each corpus is encoded once."""
    names = measure_names(options.measures)
    check_measures(names, options.rel, options.top_k)
    check_per_query(options.per_query, options.json_file)
    data = [data_folder(each, options.split) for each in options.data]
    tasks = _find_all(data, options.split, options.unseen)
    if options.run_file is not None and sum(len(some) for _, some in tasks) > 1:
        raise ConfigError("--run writes a single run: give it with one --data and one --split")
    if options.index_root is not None and (options.model or options.cache):
        raise ConfigError("--index-root has its own model and vectors: leave --model and --cache out")
    if options.rerank and options.index_root is None:
        raise ConfigError("--rerank needs the stored documents of an index: give --index-root")
    needs_model = options.retriever != "lexical" and options.index_root is None
    model = Model.open(options.model or default_model()) if needs_model else None
    dense = DenseOptions(
        options.term_stats,
        options.analyzer,
        options.device,
        options.threads or os.cpu_count() or 1,
        options.cache,
    )
    plan = _Plan(
        model,
        tasks,
        options.retriever,
        dense,
        names,
        options.rel,
        options.top_k,
        options.unseen,
        options.run_file,
        options.index_root,
        Reranking(options.rerank, options.rerank_method) if options.rerank else None,
    )
    reports = [report for folder, some in tasks for report in _measure(plan, folder, some)]
    emit([report_table(reports)], options.json_file, reports_json(reports, per_query=options.per_query))


def _find_all(
    data: Sequence[Path], splits: Sequence[str], unseen: str | None
) -> list[tuple[Path, list[Task]]]:
    tasks = [(folder, find_tasks(folder, splits)) for folder in data]
    present = {task.split for _, some in tasks for task in some}
    if unseen is not None and any(_split_file(folder, unseen).is_file() for folder in data):
        present.add(unseen)
    wanted = [*splits, *([unseen] if unseen is not None else [])]
    missing = [split for split in wanted if split not in present]
    if missing:
        raise InputError(f"no data folder has qrels/{missing[0]}.tsv")
    return tasks


def _split_file(folder: Path, split: str) -> Path:
    return folder / "qrels" / f"{split}.tsv"


def _measure(plan: _Plan, folder: Path, tasks: Sequence[Task]) -> list[Report]:
    label, retriever = _open(plan, folder)
    options: dict[str, object] = {"rel": plan.rel, "top_k": plan.top_k, "documents": len(retriever.ids)}
    if plan.reranking is not None:
        options |= {"rerank": plan.reranking.depth, "rerank_method": plan.reranking.method}
    if plan.model is not None:
        options |= {"term_stats": plan.dense.term_stats, "device": plan.dense.device}
    return [_report(plan, folder, task, (label, retriever), options) for task in tasks]


def _report(
    plan: _Plan,
    folder: Path,
    task: Task,
    searcher: tuple[str | None, Retriever],
    options: dict[str, object],
) -> Report:
    label, retriever = searcher
    task.check(retriever.ids)
    run = retriever.search(task.queries, plan.top_k)
    if plan.run_file is not None:
        write_run(plan.run_file, run, label or plan.retriever)
    evaluation = evaluate(run, task.qrels, plan.measures, plan.rel)
    unseen = None
    # Another directory may have the split; if it is missing here, all queries are unseen.
    if plan.unseen is not None and _split_file(folder, plan.unseen).is_file():
        shown = sibling_split(_split_file(folder, task.split), plan.unseen)
        unseen = unseen_part(evaluation, task.qrels, plan.unseen, shown, plan.rel)
    about = {"model": label, "data": task.data, "split": task.split, "retriever": plan.retriever}
    return Report(about, f"{task.data} {task.split}\n{plan.retriever}", evaluation, options, unseen)


def _open(plan: _Plan, folder: Path) -> tuple[str | None, Retriever]:
    """The retriever, and the name of its model."""
    if plan.index_root is not None:
        index, served = open_version(
            plan.index_root, plan.retriever, plan.dense.device, plan.dense.threads, plan.reranking
        )
        return index.model, served
    with shown_progress(sys.stderr) as show:
        retriever = open_retriever(
            plan.retriever, folder, plan.model, plan.dense, show(f"encoding {folder.name}")
        )
    return None if plan.model is None else plan.model.label, retriever
