"""Commands that make training data: `mine` finds hard negatives, `synthesise` makes pairs from documents alone."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from glow.artifact import default_model
from glow.evaluation import guarded
from glow.runtime import Device
from glow.schema import FieldSchema
from glow.training.data import read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, Precision, open_source
from glow.training.negatives import Choose, MiningOptions, MiningRetriever, mine, write_negatives
from glow.training.synthesis import KINDS, SynthesisOptions, synthesise

__all__ = ["mine_command", "synthesise_command"]

_DEFAULTS = SynthesisOptions()

ModelOption = Annotated[
    Path | None,
    typer.Option(help="Model or checkpoint folder; default: the one that models/DEFAULT names."),
]
DeviceOption = Annotated[Device, typer.Option(help="Where to encode.")]
PrecisionOption = Annotated[Precision, typer.Option(help="Of a checkpoint's towers; a model has its own.")]
ThreadsOption = Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes all cores.")]


def mine_command(
    data: Annotated[Path, typer.Option(help="BEIR-style folder.")],
    out: Annotated[Path, typer.Option(help="JSON lines file to write.")],
    split: Annotated[str, typer.Option(help="Split of the judgements.")] = "train",
    model: ModelOption = None,
    retriever: Annotated[MiningRetriever, typer.Option(help="What searches.")] = "dense",
    first: Annotated[int, typer.Option("--from", min=1, help="First rank to mine, from 1.")] = 10,
    last: Annotated[int, typer.Option("--to", min=1, help="Last rank to mine.")] = 100,
    count: Annotated[int, typer.Option(min=1, help="Most negatives a query.")] = 8,
    margin: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of the best positive's score to stay below; 0 turns it off."
        ),
    ] = 0.95,
    choose: Annotated[Choose, typer.Option(help="Which of those that pass.")] = "random",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice.")] = 0,
    fields: Annotated[str, typer.Option(help="Schema preset that names the text fields.")] = "glow-default",
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "bf16",
    threads: ThreadsOption = 0,
) -> None:
    """Find hard negatives: documents that rank high for a judged query and are not judged relevant.

    BM25 alone (`--retriever lexical`) opens a model only where `--model` names one, for the margin.
    """
    with guarded(), _progress() as show:
        options = MiningOptions(retriever, first, last, count, margin, choose, seed)
        schema = FieldSchema.preset(fields)
        collection = read_collection(data, split, schema)
        dense = None
        if model is not None or retriever != "lexical":
            source = open_source(model or default_model(), _encoding(device, precision, threads))
            dense = EncodedCorpus(source, collection.documents, show("encoding documents"))
        header, lines, figures = mine(collection, split, schema, options, dense, show("mining"))
        write_negatives(out, header, lines)
    _say({"file": str(out), **figures})


def synthesise_command(
    corpus: Annotated[Path, typer.Option(help="JSON lines of documents.")],
    out: Annotated[Path, typer.Option(help="Data folder to write.")],
    model: ModelOption = None,
    round_trip: Annotated[
        int, typer.Option(min=0, help="Last rank at which a query must find its document; 0 keeps all.")
    ] = _DEFAULTS.round_trip,
    max_queries: Annotated[int, typer.Option(min=1, help="Most queries a document.")] = _DEFAULTS.max_queries,
    drop: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="How often a query's source is left out of its document's copy."),
    ] = _DEFAULTS.drop,
    kinds: Annotated[str, typer.Option(help="Kinds of queries to make, by commas.")] = ",".join(KINDS),
    seed: Annotated[int, typer.Option(min=0, help="Seed of every choice.")] = 0,
    fields: Annotated[str, typer.Option(help="Schema preset that names the text fields.")] = "glow-default",
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "bf16",
    threads: ThreadsOption = 0,
) -> None:
    """Make training pairs from documents alone, filtered by searching for them."""
    with guarded(), _progress() as show:
        wanted = tuple(kind.strip() for kind in kinds.split(",") if kind.strip())
        options = SynthesisOptions(max_queries, drop, round_trip, seed, wanted)
        searcher = (model or default_model()) if round_trip else None
        encode = _encoding(device, precision, threads)
        schema = FieldSchema.preset(fields)
        report = synthesise(corpus, out, schema, options, searcher, encode, show("encoding documents"))
    _say({"folder": str(out), **report})


def _encoding(device: Device, precision: Precision, threads: int) -> EncodeOptions:
    threads = threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    return EncodeOptions(device, threads, precision)


@contextmanager
def _progress() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Gives a function that opens a bar by name; the bar is told what is done of how much."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield show


def _say(report: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
