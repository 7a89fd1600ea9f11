"""`glow distil`: makes a third-party encoder fast. Documents keep all of its layers, queries get a few.

The query tower starts from some of the encoder's own layers, so in the same vector space, and learns the full encoder's
vectors of unlabeled texts. A student that starts in another space takes hundreds of times as long. Intermediate files
are in OUT.distilling until the model is written, so a stopped call resumes.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from glow.collection import read_documents, read_qrels, read_queries, text_lines
from glow.commands import command, option
from glow.errors import BuildError, ConfigError
from glow.evaluation import evaluate
from glow.nn import TwoTowers
from glow.records import Query
from glow.text import Preprocessor
from glow.training import (
    EncodedCorpus,
    Place,
    QueryTexts,
    SynthesisOptions,
    TrainingDevice,
    query_recipe,
    run,
    synthesize,
    teller,
    vectors,
    with_few_layers,
)
from glow.training import Source as Encoders
from glow_model_export.command import show_report
from glow_model_export.imported import (
    ImportModelOptions,
    QueriesAbout,
    read_source,
    require_finite,
    write_queries_file,
)
from glow_model_export.package import Source, export_model

HELD_OUT = 0.05
"""Fraction of the documents whose texts are held out to measure the tower."""
QUERIES_A_DOCUMENT = 8
PARITY_TEXTS, TIMED_QUERIES = 200, 64


class DistilOptions(ImportModelOptions):
    """Which encoder to make fast, and with which texts."""

    documents: Path = option(
        ...,
        "Documents (JSON Lines) to learn from: titles, anchors, clicked queries and sentences.",
        flag="--input",
        metavar="FILE",
    )
    texts: tuple[Path, ...] = option(
        (), "More texts, such as queries, one per line; repeatable.", metavar="FILE"
    )
    layers: str = option(
        "",
        "Encoder layers that queries keep, from 0, separated by commas; default: the first and the last two.",
    )
    hours: float = option(
        0.4, "Longest training time in hours; it ends earlier if held-out texts stop improving.", gt=0.0
    )
    keep_queries: Path | None = option(
        None,
        "File for the query tower alone, for `glow import-model --queries`.",
        metavar="FILE",
    )
    seed: int = option(0, "Random seed.")
    device: TrainingDevice = option("auto", "`auto`: a GPU if there is one.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)


@command(DistilOptions)
def distil_command(options: DistilOptions) -> None:
    """Makes a fast model of an encoder that others trained: documents keep its layers, queries get a few; the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.out.exists() and not options.replace:
        raise BuildError(f"{options.out} exists; choose another --out, or give --replace")
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    report = _distil(options, lambda line: console.print(line, markup=False))
    show_report(options, report)


def _distil(options: DistilOptions, say: Callable[[str], None]) -> dict[str, Any]:
    work = options.out.with_name(f"{options.out.name}.distilling")
    (work / "vocabulary").mkdir(parents=True, exist_ok=True)
    whole = read_source(options, work / "vocabulary")
    require_finite(whole)
    layers = _layers(options.layers, whole.towers.config.layers)
    towers = _student(whole.towers, layers)
    say(f"making texts from {options.documents.name}")
    texts, held = _texts(options, work, whole.preprocessor)
    say(f"{len(texts):,} texts, {len(held):,} held out; encoding them")
    made = QueryTexts.make(work / "teacher", whole.towers.query, whole.preprocessor, texts, held)
    recipe = query_recipe(towers, whole.preprocessor, made, options.seed, options.hours)
    training = run(recipe, Place(work / "run", None, options.device), teller(say))
    towers.cpu().eval()
    say("comparing")
    figures = _compared(options, whole, towers) if options.parity_data else {}
    say("exporting")
    training["layers"] = list(layers)
    student = replace(
        whole, towers=towers, report={**whole.report, "distilled": training, "retrieval": figures}
    )
    queries = held[:PARITY_TEXTS] or texts[:PARITY_TEXTS]
    names = whole.preprocessor.schema.names
    documents = [
        each for _, each in zip(range(PARITY_TEXTS), read_documents(options.documents, names), strict=False)
    ]
    exported = export_model(
        student, options.out, options.quantize, queries, documents, replace=options.replace
    )
    if options.keep_queries is not None:
        about = QueriesAbout(
            encoder=whole.parent["sha256"], layers=layers, tokens=whole.preprocessor.schema.query_tokens
        )
        write_queries_file(options.keep_queries, towers.query, about)
    shutil.rmtree(work)
    return {
        "model": options.out.name,
        "layers": list(layers),
        "training": training,
        "retrieval": figures,
        **exported,
    }


def _layers(asked: str, depth: int) -> tuple[int, ...]:
    try:
        found = (
            tuple(int(part) for part in asked.split(","))
            if asked
            else tuple(sorted({0, depth - 2, depth - 1}))
        )
    except ValueError as error:
        raise ConfigError(f"--layers is a list of numbers such as 0,4,5, found {asked!r}") from error
    if list(found) != sorted(set(found)) or not 0 <= found[0] <= found[-1] < depth:
        raise ConfigError(f"--layers must ascend from 0 to {depth - 1} at most; found {asked or found}")
    return found


def _student(whole: TwoTowers, layers: Sequence[int]) -> TwoTowers:
    """Towers with few query layers; only these are trained."""
    towers = with_few_layers(whole, layers)
    towers.document.requires_grad_(False)
    towers.words.weight.requires_grad_(False)
    return towers


def _texts(options: DistilOptions, work: Path, preprocessor: Preprocessor) -> tuple[list[str], list[str]]:
    """Distinct training texts, and held-out texts of other documents."""
    making = SynthesisOptions(
        QUERIES_A_DOCUMENT, drop=0.0, round_trip=0, seed=options.seed, held_out=HELD_OUT
    )
    synthesize(options.documents, work / "pairs", preprocessor.schema, making)
    known = {each.id: each.text for each in read_queries(work / "pairs" / "queries.jsonl")}
    files = [work / "pairs" / "qrels" / f"{split}.tsv" for split in ("train", "dev")]
    train, dev = (
        [known[row.query_id] for row in read_qrels(each)] if each.is_file() else [] for each in files
    )
    train += text_lines(options.texts)
    every = dict.fromkeys(train)
    return list(every), [text for text in dict.fromkeys(dev) if text not in every]


def _compared(options: DistilOptions, whole: Source, towers: TwoTowers) -> dict[str, Any]:
    """RR@10 and nDCG@10 over judged queries with the full and the fast query tower, and the time per query (torch)."""
    data, preprocessor = options.parity_data or Path(), whole.preprocessor
    pad_id, qrels = preprocessor.pieces.pad_id, list(read_qrels(data / "qrels" / f"{options.split}.tsv"))
    asked = {row.query_id for row in qrels}
    queries = [Query(each.id, each.text) for each in read_queries(data / "queries.jsonl") if each.id in asked]
    found: dict[str, Any] = {"data": data.name, "split": options.split}
    read = partial(vectors, whole.towers.document, pad_id=pad_id)
    sides = {
        name: Encoders(
            name, name, preprocessor, partial(vectors, tower, pad_id=pad_id, precision="fp32"), read
        )
        for name, tower in (("whole", whole.towers.query), ("fast", towers.query))
    }
    documents = list(read_documents(data / "corpus.jsonl", preprocessor.schema.names))
    corpus = EncodedCorpus(sides["whole"], documents)
    for name, source in sides.items():
        corpus.source = source
        measured = evaluate(corpus.search(queries, 100), qrels, ["RR@10", "nDCG@10"]).means
        found[name] = {**measured, "ms_a_query": _milliseconds(source, [query.text for query in queries])}
    return found


def _milliseconds(source: Encoders, texts: Sequence[str]) -> float:
    tokens = [source.preprocessor.query(text) for text in texts[:TIMED_QUERIES]]
    times = []
    for one in tokens:
        start = time.perf_counter()
        source.queries([one])
        times.append(time.perf_counter() - start)
    return round(1000.0 * float(np.median(times)), 2) if times else 0.0
