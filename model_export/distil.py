"""`glow distil`: makes a third-party encoder fast. Documents keep all of its layers, queries get a few.

The query tower starts from some of the encoder's own layers, so in the same vector space, and learns the full encoder's
vectors of unlabeled texts. Intermediate files are in OUT.distilling, so a stopped call resumes.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
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
from glow_model_export.graph import torch_source, torch_vectors
from glow_model_export.imported import (
    ImportedEncoder,
    ImportModelOptions,
    QueriesAbout,
    encoder_folder,
    read_encoder,
    sentences,
    write_queries_file,
)
from glow_model_export.package import export_model, show_report

HELD_OUT = 0.05
"""Fraction of the documents whose texts are held out to measure the tower."""
QUERIES_A_DOCUMENT = 8
PARITY_TEXTS, TIMED_QUERIES = 200, 64


class DistilOptions(ImportModelOptions):
    """Which encoder to make fast, and with which texts."""

    documents: Path = option(
        ...,
        "Documents (JSON Lines) to learn from, by their titles and texts.",
        flag="--input",
        metavar="FILE",
    )
    texts: tuple[Path, ...] = option(
        (), "More texts, such as queries, one per line; repeatable.", metavar="FILE"
    )
    layers: str = option(
        "", "Encoder layers that queries keep, such as 0,4,5; default: the first and last two."
    )
    hours: float = option(
        0.4, "Longest training time in hours; it ends earlier if held-out texts stop improving.", gt=0.0
    )
    keep_queries: Path | None = option(
        None, "File for the query tower alone, for `glow import-model --queries`.", metavar="FILE"
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
    with encoder_folder(options) as folder:
        encoder = read_encoder(folder, options, work / "vocabulary")
    preprocessor, whole = encoder.preprocessor, _teacher(encoder)
    layers = _layers(options.layers, whole.config.layers)
    towers = with_few_layers(whole, layers)
    towers.document.requires_grad_(False)  # only query layers are trained
    towers.words.weight.requires_grad_(False)
    say(f"making texts from {options.documents.name}")
    texts, held_out = _texts(options, work, preprocessor)
    say(f"{len(texts):,} texts, {len(held_out):,} held out; encoding them")
    vectors_of = QueryTexts.make(work / "teacher", whole.query, preprocessor, texts, held_out)
    recipe = query_recipe(towers, preprocessor, vectors_of, options.seed, options.hours)
    training = run(recipe, Place(work / "run", None, options.device), teller(say))
    towers.cpu().eval()
    say("comparing")
    figures = _compared(options, preprocessor, whole, towers) if options.parity_data else {}
    say("exporting")
    training["layers"] = list(layers)
    about = {"imported": encoder.parent["imported"], "distilled": training, "retrieval": figures}
    student = torch_source(towers, preprocessor, about, encoder.parent)
    queries = held_out[:PARITY_TEXTS] or texts[:PARITY_TEXTS]
    documents = list(islice(read_documents(options.documents, preprocessor.schema.names), PARITY_TEXTS))
    how, replace = options.quantize, options.replace
    exported = export_model(student, options.out, how, queries, documents, replace=replace)
    if options.keep_queries is not None:
        tokens = preprocessor.schema.query_tokens
        identity = QueriesAbout(encoder=encoder.parent["sha256"], layers=layers, tokens=tokens)
        tower = {name: each.detach().float().numpy() for name, each in towers.query.named_parameters()}
        write_queries_file(options.keep_queries, tower, identity)
    shutil.rmtree(work)
    members = {"model": options.out.name, "layers": list(layers), "training": training}
    return {**members, "retrieval": figures, **exported}


def _layers(text: str, depth: int) -> tuple[int, ...]:
    try:
        layers = tuple(map(int, text.split(","))) if text else tuple(sorted({0, depth - 2, depth - 1}))
    except ValueError as error:
        raise ConfigError(f"--layers is a list of numbers such as 0,4,5, found {text!r}") from error
    if list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] < depth:
        raise ConfigError(f"--layers must ascend from 0 to {depth - 1} at most; found {text or layers}")
    return layers


def _teacher(encoder: ImportedEncoder) -> TwoTowers:
    """The encoder in torch, in evaluation mode; one whose vectors are not finite is refused."""
    schema = encoder.preprocessor.schema
    towers = TwoTowers.unset(encoder.config, schema)
    for name, tower in ((QUERY_TOWER, towers.query), (DOCUMENT_TOWER, towers.document)):
        tower.load_state_dict({key: torch.from_numpy(value) for key, value in encoder.towers[name].items()})
    tokens = [encoder.preprocessor.query(text) for text in sentences(schema)[0]]
    if not np.isfinite(torch_vectors(towers.query, tokens, encoder.preprocessor.pieces.pad_id)).all():
        raise ConfigError("the encoder's vectors hold NaN or infinity; expected trained weights")
    return towers.eval()


def _texts(options: DistilOptions, work: Path, preprocessor: Preprocessor) -> tuple[list[str], list[str]]:
    """Distinct training texts, and held-out texts of other documents."""
    how = SynthesisOptions(QUERIES_A_DOCUMENT, drop=0.0, round_trip=0, seed=options.seed, held_out=HELD_OUT)
    synthesize(options.documents, work / "pairs", preprocessor.schema, how)
    known = {each.id: each.text for each in read_queries(work / "pairs" / "queries.jsonl")}
    files = [work / "pairs" / "qrels" / f"{split}.tsv" for split in ("train", "dev")]
    train, dev = (
        [known[row.query_id] for row in read_qrels(each)] if each.is_file() else [] for each in files
    )
    distinct = dict.fromkeys([*train, *text_lines(options.texts)])
    return list(distinct), [text for text in dict.fromkeys(dev) if text not in distinct]


def _compared(
    options: DistilOptions, preprocessor: Preprocessor, whole: TwoTowers, towers: TwoTowers
) -> dict[str, Any]:
    """RR@10 and nDCG@10 over judged queries with the full and the fast query tower, and the time per query (torch)."""
    data = options.parity_data or Path()
    pad_id, qrels = preprocessor.pieces.pad_id, list(read_qrels(data / "qrels" / f"{options.split}.tsv"))
    judged = {row.query_id for row in qrels}
    queries = [
        Query(each.id, each.text) for each in read_queries(data / "queries.jsonl") if each.id in judged
    ]
    figures: dict[str, Any] = {"data": data.name, "split": options.split}
    read = partial(vectors, whole.document, pad_id=pad_id)
    sides = {}
    for name, tower in (("whole", whole.query), ("fast", towers.query)):
        ask = partial(vectors, tower, pad_id=pad_id, precision="fp32")
        sides[name] = Encoders(name, name, preprocessor, ask, read)
    documents = list(read_documents(data / "corpus.jsonl", preprocessor.schema.names))
    corpus = EncodedCorpus(sides["whole"], documents)
    for name, source in sides.items():
        corpus.source = source
        measured = evaluate(corpus.search(queries, 100), qrels, ["RR@10", "nDCG@10"]).means
        figures[name] = {**measured, "ms_a_query": _milliseconds(source, [query.text for query in queries])}
    return figures


def _milliseconds(source: Encoders, texts: Sequence[str]) -> float:
    tokens = [source.preprocessor.query(text) for text in texts[:TIMED_QUERIES]]
    times = []
    for one in tokens:
        start = time.perf_counter()
        source.queries([one])
        times.append(time.perf_counter() - start)
    return round(1000.0 * float(np.median(times)), 2) if times else 0.0
