"""`glow evaluate` searches judged queries and measures the hits; `glow compare` compares runs with a baseline run."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from glow.artifact import find_model
from glow.commands import command, option, shown_progress, write_text
from glow.errors import ConfigError, InputError
from glow.evaluation.comparison import SAMPLES, Test, Unseen, compare_all, unseen_queries
from glow.evaluation.corpus_index import DenseOptions
from glow.evaluation.measures import DEFAULT_MEASURES, check_measures, evaluate, measure_names
from glow.evaluation.report import (
    Report,
    comparison_json,
    comparison_markdown,
    comparison_table,
    report_table,
    reports_json,
)
from glow.evaluation.retrievers import Retriever, RetrieverKind, open_retriever, open_version
from glow.evaluation.runs import Run, read_run, write_run
from glow.evaluation.task import Task, find_tasks, read_judgements
from glow.options import StrictModel
from glow.records import Qrel
from glow.runtime import Device, Model
from glow.search import MAX_DEPTH, Reranking
from glow.text import DEFAULT_ANALYZER, AnalyzerName, TermStats

# Twice the cutoff of R@100: fusion needs candidates from below the measured depth.
TOP_K = 200


class MeasureOptions(StrictModel):
    """What to measure."""

    measures: tuple[str, ...] = option(
        DEFAULT_MEASURES,
        "Measures as ir-measures spells them, NCG@k, ERR@k, or `papers`; separated by spaces, or repeated.",
    )
    rel: int = option(1, "Lowest relevant grade, for RR, R, P and Success.")


class ReportOptions(StrictModel):
    """Where to write a report."""

    json_file: Path | None = option(
        None, "Write the report as JSON; `-` is standard output.", flag="--json", metavar="FILE"
    )


class EvaluateOptions(ReportOptions, MeasureOptions):
    """What to search, with which retriever, and how to measure it."""

    data: tuple[Path, ...] = option(..., "Data directory in BEIR format; repeatable.", metavar="DIR")
    split: tuple[str, ...] = option(..., "Split of the relevance judgments, qrels/SPLIT.tsv; repeatable.")
    model: Path | None = option(
        None, "Model, by name (glow-base) or directory; default: glow-mini.", metavar="DIR"
    )
    index_root: Path | None = option(
        None, "Measure the live version of this index as it is served, instead of a corpus in memory."
    )
    retriever: RetrieverKind = option("dense", "Retriever.")
    rerank: int = option(0, "Hits to re-rank, as a request with `rerank` does; 0: none.", ge=0, le=MAX_DEPTH)
    top_k: int = option(TOP_K, "Hits per query; hybrid fuses at least 100.", ge=1)
    term_stats: TermStats = option("corpus", "Source of idf: the corpus, or the model's own documents.")
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
    unseen: str | None = option(
        None,
        "Report separately the queries that share no relevant document with a query of SPLIT.",
        metavar="SPLIT",
    )
    per_query: bool = option(False, "Add each query's values to the JSON.")


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked request of `glow evaluate`."""

    options: EvaluateOptions
    measures: Sequence[str]
    model: Model | None
    dense: DenseOptions
    reranking: Reranking | None


@command(EvaluateOptions)
def evaluate_command(options: EvaluateOptions) -> None:
    """Measures one retriever over the judged queries of one or more splits; each corpus is encoded once."""
    names = measure_names(options.measures)
    check_measures(names, options.rel, options.top_k)
    if options.per_query and options.json_file is None:
        raise ConfigError("--per-query adds to the JSON: give --json FILE, or --json - for standard output")
    tasks = _find_all(options.data, options.split, options.unseen)
    if options.run_file is not None and sum(len(some) for _, some in tasks) > 1:
        raise ConfigError("--run writes a single run: give it with one --data and one --split")
    if options.index_root is not None and (options.model or options.cache):
        raise ConfigError("--index-root has its own model and vectors: leave --model and --cache out")
    if options.rerank and options.index_root is None:
        raise ConfigError("--rerank needs the stored documents of an index: give --index-root")
    needs_model = options.retriever != "lexical" and options.index_root is None
    plan = _Plan(
        options,
        names,
        Model.open(find_model(options.model)) if needs_model else None,
        DenseOptions(
            options.term_stats,
            options.analyzer,
            options.device,
            options.threads or os.cpu_count() or 1,
            options.cache,
        ),
        Reranking(options.rerank) if options.rerank else None,
    )
    reports = [report for folder, some in tasks for report in _measure(plan, folder, some)]
    _emit([report_table(reports)], options.json_file, reports_json(reports, per_query=options.per_query))


def _find_all(
    data: Sequence[Path], splits: Sequence[str], unseen: str | None
) -> list[tuple[Path, list[Task]]]:
    tasks = [(folder, find_tasks(folder, splits)) for folder in data]
    present = {task.split for _, some in tasks for task in some}
    if unseen is not None and any(_split_file(folder, unseen).is_file() for folder in data):
        present.add(unseen)
    required = [*splits, *([unseen] if unseen is not None else [])]
    missing = [split for split in required if split not in present]
    if missing:
        raise InputError(f"no data folder has qrels/{missing[0]}.tsv")
    return tasks


def _split_file(folder: Path, split: str) -> Path:
    return folder / "qrels" / f"{split}.tsv"


def _measure(plan: _Plan, folder: Path, tasks: Sequence[Task]) -> list[Report]:
    label, retriever = _open(plan, folder)
    options: dict[str, object] = {
        "rel": plan.options.rel, "top_k": plan.options.top_k, "documents": len(retriever.ids),
    }  # fmt: skip
    if plan.reranking is not None:
        options["rerank"] = plan.reranking.depth
    if plan.model is not None:
        options |= {"term_stats": plan.dense.term_stats, "device": plan.dense.device}
    return [_report(plan, folder, task, label, retriever, options) for task in tasks]


def _open(plan: _Plan, folder: Path) -> tuple[str | None, Retriever]:
    """The name of the retriever's model, and the retriever."""
    kind, dense = plan.options.retriever, plan.dense
    if plan.options.index_root is not None:
        index, served = open_version(
            plan.options.index_root, kind, dense.device, dense.threads, plan.reranking
        )
        return index.model, served
    with shown_progress(sys.stderr) as show:
        retriever = open_retriever(kind, folder, plan.model, dense, show(f"encoding {folder.name}"))
    return None if plan.model is None else plan.model.label, retriever


def _report(
    plan: _Plan,
    folder: Path,
    task: Task,
    label: str | None,
    retriever: Retriever,
    figures: dict[str, object],
) -> Report:
    options, kind = plan.options, plan.options.retriever
    task.check(retriever.ids)
    run = retriever.search(task.queries, options.top_k)
    if options.run_file is not None:
        write_run(options.run_file, run, label or kind)
    evaluation = evaluate(run, task.qrels, plan.measures, options.rel)
    unseen = None
    # Another directory may have the split; if it is missing here, all queries are unseen.
    if options.unseen is not None and _split_file(folder, options.unseen).is_file():
        shown = _sibling_split(_split_file(folder, task.split), options.unseen)
        queries = unseen_queries(task.qrels, shown, options.rel)
        unseen = Unseen(options.unseen, evaluation.only(queries))
    about = {"model": label, "data": task.data, "split": task.split, "retriever": kind}
    return Report(about, f"{task.data} {task.split}\n{kind}", evaluation, figures, unseen)


def _sibling_split(qrels: Path, split: str) -> list[Qrel]:
    """The judgments of another split, which are beside a judgment file."""
    path = qrels.parent / f"{split}{qrels.suffix}"
    if not path.is_file():
        raise InputError(f"there is no {path.name} beside {qrels}: give the name of a split of the same data")
    return read_judgements(path)


class CompareOptions(ReportOptions, MeasureOptions):
    """Which runs to compare, and with which test."""

    baseline: Path = option(..., "TREC run file of the baseline.", is_argument=True, metavar="BASELINE")
    runs: tuple[Path, ...] = option(
        ..., "TREC run files to compare with the baseline.", is_argument=True, metavar="RUN..."
    )
    test: Test = option("randomisation", "Significance test of the tables.")
    only_unseen: str | None = option(
        None, "Compare only the queries that `evaluate --unseen` separates.", metavar="SPLIT"
    )
    samples: int = option(SAMPLES, "Resamples per method.", ge=1)
    seed: int = option(0, "Random seed.", ge=0)
    markdown_file: Path | None = option(
        None, "Write the report as Markdown; `-` is standard output.", flag="--markdown", metavar="FILE"
    )
    qrels: Path = option(..., "Relevance judgments: a BEIR qrels/SPLIT.tsv or a TREC file.", metavar="FILE")


@command(CompareOptions)
def compare_command(options: CompareOptions) -> None:
    """Compares runs with a baseline query by query: differences, intervals, two tests, Holm's correction."""
    names, qrels, rel = measure_names(options.measures), options.qrels, options.rel
    check_measures(names, rel)
    judgements = read_judgements(qrels)
    paths = [options.baseline, *options.runs]
    evaluations = [evaluate(run, judgements, names, rel) for run in _read_runs(paths, judgements, qrels.name)]
    if options.only_unseen is not None:
        unseen = unseen_queries(judgements, _sibling_split(qrels, options.only_unseen), rel)
        if not unseen:
            raise InputError(
                f"every query of {qrels.name} has a relevant document that is also relevant in {options.only_unseen}"
            )
        evaluations = [evaluation.only(unseen) for evaluation in evaluations]
    name, *labels = _labels(paths)
    if len(set(labels)) < len(labels):
        raise ConfigError("one run file was given twice")
    comparisons = compare_all(evaluations[0], evaluations[1:], options.samples, options.seed)
    systems = dict(zip(labels, comparisons, strict=True))
    tables = [comparison_table(label, item, name, options.test) for label, item in systems.items()]
    page = comparison_markdown(name, systems, options.test)
    _emit(tables, options.json_file, comparison_json(systems), (options.markdown_file, page))


def _read_runs(paths: Sequence[Path], qrels: Sequence[Qrel], name: str) -> list[Run]:
    """Reads run files, and refuses one without any judged query; `name` is the judgments', for the message."""
    judged = {qrel.query_id for qrel in qrels}
    runs = []
    for path in paths:
        runs.append(read_run(path))
        if not judged & runs[-1].keys():
            raise InputError(f"{path.name} holds none of the judged queries of {name}")
    return runs


def _labels(paths: Sequence[Path]) -> list[str]:
    """Names of runs: the file name without its suffix, or the given path if two names would be equal."""
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]


def _emit(
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
