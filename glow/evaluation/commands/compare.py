"""`python -m glow.evaluation {compare,failures}`: one run, the baseline, beside others."""

from pathlib import Path
from typing import Annotated

import typer

from glow.errors import ConfigError, InputError
from glow.evaluation.commands.options import (
    JsonFile,
    MarkdownFile,
    Measures,
    Qrels,
    Rel,
    emit,
    guard,
    read_runs,
    run_labels,
    sibling_split,
)
from glow.evaluation.comparison import SAMPLES, Test, analyse, compare_all, unseen_queries
from glow.evaluation.judgements import read_judgements
from glow.evaluation.markdown import analysis_markdown, comparison_markdown
from glow.evaluation.measures import DEFAULT_MEASURES, check_measures, evaluate, measure_names
from glow.evaluation.report import analysis_json, comparison_json, comparison_table
from glow.evaluation.task import Corpus, find_tasks
from glow.schema import FieldSchema

__all__ = ["compare_command", "failures_command"]

Baseline = Annotated[Path, typer.Argument(metavar="BASELINE", help="TREC run file to compare with.")]


def compare_command(
    baseline: Baseline,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="TREC run files to compare with it.")],
    qrels: Qrels,
    measures: Measures = list(DEFAULT_MEASURES),  # noqa: B006 - typer copies it and shows it in --help
    rel: Rel = 1,
    test: Annotated[Test, typer.Option(help="The test that tables and marks go by.")] = "randomisation",
    only_unseen: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT", help="Compare on the queries alone that `measure --unseen` sets apart."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Resamples of each method.")] = SAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare runs with a baseline query by query: differences, intervals, two tests, Holm's correction."""

    def work() -> None:
        names = measure_names(measures)
        check_measures(names, rel)
        judgements = read_judgements(qrels)
        paths = [baseline, *runs]
        evaluations = [
            evaluate(run, judgements, names, rel) for run in read_runs(paths, judgements, qrels.name)
        ]
        if only_unseen is not None:
            kept = unseen_queries(judgements, sibling_split(qrels, only_unseen), rel)
            if not kept:
                raise InputError(
                    f"every query of {qrels.name} has a relevant document that {only_unseen} shows"
                )
            evaluations = [evaluation.only(kept) for evaluation in evaluations]
        name, *labels = run_labels(paths)
        if len(set(labels)) < len(labels):
            raise ConfigError("one run file was given twice")
        found = compare_all(evaluations[0], evaluations[1:], samples, seed)
        systems = dict(zip(labels, found, strict=True))
        tables = [comparison_table(label, item, name, test) for label, item in systems.items()]
        page = comparison_markdown(name, systems, test)
        emit(tables, json_file, comparison_json(systems), (markdown_file, page))

    guard(work)


def failures_command(
    baseline: Baseline,
    run: Annotated[Path, typer.Argument(help="TREC run file to compare with it.")],
    data: Annotated[Path, typer.Option(help="BEIR folder that both runs searched.")],
    split: Annotated[str, typer.Option(help="Judgements, qrels/SPLIT.tsv.")],
    measure: Annotated[str, typer.Option(help="The measure whose differences count.")] = "nDCG@10",
    rel: Rel = 1,
    top: Annotated[int, typer.Option(min=1, help="Most queries won, and most lost.")] = 20,
    hits: Annotated[int, typer.Option(min=1, help="First hits of each run to show.")] = 3,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Show the queries that a run wins and loses most against a baseline, and what both put first."""

    def work() -> None:
        check_measures([measure], rel)
        (task,) = find_tasks(data, [split])
        before, after = read_runs([baseline, run], task.qrels, f"{task.data}/qrels/{split}.tsv")
        corpus = Corpus(data, FieldSchema.preset("glow-default").names)
        analysis = analyse(before, after, task, corpus, measure, rel, top, hits)
        labels = run_labels([baseline, run])
        options = {"baseline_run": labels[0], "system_run": labels[1], "data": task.data, "split": split}
        page = analysis_markdown(analysis, labels[0], labels[1], f"{task.data} {split}")
        shown = Path("-") if json_file is None and markdown_file is None else markdown_file
        emit([], json_file, analysis_json(analysis, {**options, "rel": rel}), (shown, page))

    guard(work)
