"""The commands that make training data: `mine` finds hard negatives, `synthesize` makes pairs from documents alone."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from glow.artifact import default_model
from glow.commands import command, option, shown_progress
from glow.negatives import write_negatives
from glow.options import StrictModel
from glow.runtime import Device
from glow.schema import FieldSchema
from glow.training.data import read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, Precision, open_source
from glow.training.negatives import Choose, MiningOptions, MiningRetriever, mine
from glow.training.synthesis import KINDS, SynthesisOptions, synthesize

__all__ = ["MineOptions", "SynthesizeOptions", "mine_command", "synthesize_command"]

_DEFAULTS = SynthesisOptions()


class EncodingOptions(StrictModel):
    """The encoder and where it runs."""

    model: Path | None = option(
        None, "Model or checkpoint directory; default: the one that models/DEFAULT names.", metavar="DIR"
    )
    fields: str = option("glow-default", "Schema preset with the text fields.")
    device: Device = option("cpu", "Device that encodes.")
    precision: Precision = option("bf16", "Precision of a checkpoint's towers; a model has its own.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)

    def encoding(self) -> EncodeOptions:
        """Converts the options of encoding; also sets torch's number of threads."""
        threads = self.threads or os.cpu_count() or 1
        torch.set_num_threads(threads)
        return EncodeOptions(self.device, threads, self.precision)


class MineOptions(EncodingOptions):
    """Options of mining hard negatives."""

    data: Path = option(..., "Data directory in BEIR format.", metavar="DIR")
    out: Path = option(..., "JSON Lines file to write.", metavar="FILE")
    split: str = option("train", "Split of the relevance judgments.")
    retriever: MiningRetriever = option("dense", "Retriever.")
    first: int = option(10, "First rank to mine, from 1.", flag="--min-rank", ge=1)
    last: int = option(100, "Last rank to mine.", flag="--max-rank", ge=1)
    count: int = option(8, "Most negatives per query.", ge=1)
    margin: float = option(
        0.95, "Highest fraction of the best positive's score; 0: no limit.", ge=0.0, le=1.0
    )
    choose: Choose = option("random", "Which documents to choose.")
    seed: int = option(0, "Random seed.", ge=0)


class SynthesizeOptions(EncodingOptions):
    """Which pairs to make from documents alone."""

    corpus: Path = option(..., "Documents (JSON Lines).", metavar="FILE")
    out: Path = option(..., "Data directory to write.", metavar="DIR")
    round_trip: int = option(
        _DEFAULTS.round_trip, "Lowest rank at which a query must find its document; 0 keeps all.", ge=0
    )
    max_queries: int = option(_DEFAULTS.max_queries, "Most queries per document.", ge=1)
    drop: float = option(
        _DEFAULTS.drop, "Fraction of document copies that lack the query's source.", ge=0.0, le=1.0
    )
    kinds: str = option(",".join(KINDS), "Kinds of queries, separated by commas.")
    seed: int = option(0, "Random seed.", ge=0)


@command(MineOptions)
def mine_command(options: MineOptions) -> None:
    """Finds hard negatives: documents that rank high for a judged query and are not judged relevant.

    BM25 alone (`--retriever lexical`) opens a model only if `--model` names one, for the margin.
    """
    with shown_progress(sys.stderr) as show:
        mining = MiningOptions(
            options.retriever,
            options.first,
            options.last,
            options.count,
            options.margin,
            options.choose,
            options.seed,
        )
        schema = FieldSchema.preset(options.fields)
        collection = read_collection(options.data, options.split, schema)
        dense = None
        if options.model is not None or options.retriever != "lexical":
            source = open_source(options.model or default_model(), options.encoding())
            dense = EncodedCorpus(source, collection.documents, show("encoding documents"))
        header, lines, figures = mine(collection, options.split, schema, mining, dense, show("mining"))
        write_negatives(options.out, header, lines)
    _say({"file": str(options.out), **figures})


@command(SynthesizeOptions)
def synthesize_command(options: SynthesizeOptions) -> None:
    """Makes training pairs from documents alone, filtered by searching for them."""
    with shown_progress(sys.stderr) as show:
        kinds = tuple(kind.strip() for kind in options.kinds.split(",") if kind.strip())
        making = SynthesisOptions(options.max_queries, options.drop, options.round_trip, options.seed, kinds)
        searcher = (options.model or default_model()) if options.round_trip else None
        encode = options.encoding()
        schema = FieldSchema.preset(options.fields)
        report = synthesize(
            options.corpus, options.out, schema, making, searcher, encode, show("encoding documents")
        )
    _say({"folder": str(options.out), **report})


def _say(report: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
