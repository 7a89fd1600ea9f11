"""`glow compare` and `glow failures`: compare runs with a baseline run."""

from pathlib import Path

from glow.commands import command, option
from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    MarkdownOptions,
    MeasureOptions,
    QrelsOptions,
    RelevanceOptions,
    emit,
    read_runs,
    run_labels,
    sibling_split,
)
from glow.evaluation.comparison import SAMPLES, Test, analyse, compare_all, unseen_queries
from glow.evaluation.judgements import read_judgements
from glow.evaluation.markdown import analysis_markdown, comparison_markdown
from glow.evaluation.measures import check_measures, evaluate, measure_names
from glow.evaluation.report import analysis_json, comparison_json, comparison_table
from glow.evaluation.task import Corpus, find_tasks
from glow.schema import FieldSchema

__all__ = ["compare_command", "failures_command"]


class CompareOptions(MarkdownOptions, MeasureOptions, QrelsOptions):
    """Which runs to compare, and with which test."""

    baseline: Path = option(..., "TREC run file of the baseline.", is_argument=True, metavar="BASELINE")
    runs: tuple[Path, ...] = option(
        ..., "TREC run files to compare with the baseline.", is_argument=True, metavar="RUN..."
    )
    test: Test = option("randomisation", "Significance test of the tables.")
    only_unseen: str | None = option(
        None, "Compare only the queries that `measure --unseen` separates.", metavar="SPLIT"
    )
    samples: int = option(SAMPLES, "Resamples per method.", ge=1)
    seed: int = option(0, "Random seed.", ge=0)


class FailuresOptions(MarkdownOptions, RelevanceOptions):
    """Which two runs to analyze, and how many queries and hits to show."""

    baseline: Path = option(..., "TREC run file of the baseline.", is_argument=True, metavar="BASELINE")
    run: Path = option(..., "TREC run file to compare with the baseline.", is_argument=True, metavar="RUN")
    data: Path = option(..., "Data directory that both runs searched.", metavar="DIR")
    split: str = option(..., "Split of the relevance judgments, qrels/SPLIT.tsv.")
    measure: str = option("nDCG@10", "Measure that orders the queries.")
    top: int = option(20, "Most queries won and most lost.", ge=1)
    hits: int = option(3, "Hits per run to show.", ge=1)


@command(CompareOptions)
def compare_command(options: CompareOptions) -> None:
    """Compares runs with a baseline query by query: differences, intervals, two tests, Holm's correction."""
    names, qrels, rel = measure_names(options.measures), options.qrels, options.rel
    check_measures(names, rel)
    judgements = read_judgements(qrels)
    paths = [options.baseline, *options.runs]
    evaluations = [evaluate(run, judgements, names, rel) for run in read_runs(paths, judgements, qrels.name)]
    if options.only_unseen is not None:
        kept = unseen_queries(judgements, sibling_split(qrels, options.only_unseen), rel)
        if not kept:
            raise InputError(
                f"every query of {qrels.name} has a relevant document that is also relevant in {options.only_unseen}"
            )
        evaluations = [evaluation.only(kept) for evaluation in evaluations]
    name, *labels = run_labels(paths)
    if len(set(labels)) < len(labels):
        raise ConfigError("one run file was given twice")
    comparisons = compare_all(evaluations[0], evaluations[1:], options.samples, options.seed)
    systems = dict(zip(labels, comparisons, strict=True))
    tables = [comparison_table(label, item, name, options.test) for label, item in systems.items()]
    page = comparison_markdown(name, systems, options.test)
    emit(tables, options.json_file, comparison_json(systems), (options.markdown_file, page))


@command(FailuresOptions)
def failures_command(options: FailuresOptions) -> None:
    """Shows the queries that a run wins and loses most against a baseline, and what both put first."""
    measure, rel, split = options.measure, options.rel, options.split
    check_measures([measure], rel)
    (task,) = find_tasks(options.data, [split])
    paths = [options.baseline, options.run]
    before, after = read_runs(paths, task.qrels, f"{task.data}/qrels/{split}.tsv")
    corpus = Corpus(options.data, FieldSchema.preset("glow-default").names)
    analysis = analyse(before, after, task, corpus, measure, rel, options.top, options.hits)
    labels = run_labels(paths)
    about = {"baseline_run": labels[0], "system_run": labels[1], "data": task.data, "split": split}
    page = analysis_markdown(analysis, labels[0], labels[1], f"{task.data} {split}")
    is_unasked = options.json_file is None and options.markdown_file is None
    shown = Path("-") if is_unasked else options.markdown_file
    emit([], options.json_file, analysis_json(analysis, {**about, "rel": rel}), (shown, page))
