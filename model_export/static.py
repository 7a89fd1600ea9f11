"""`glow static-queries`: derives a model whose queries need no layers, only a row of numbers for each token.

The rows learn the vectors that the model's own query tower gives to unlabeled texts. Documents are encoded as before;
only token vectors are left out.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from rich.console import Console

from glow.artifact import (
    CALIBRATION_FILE,
    DOCUMENT_TOWER,
    EXPLAIN_TOWERS,
    QUERY_TOWER,
    TERMS_TOWER,
    TOKEN_PROJECTION,
    TOWER_WEIGHTS,
    file_records,
    model_hash,
    write_artifact,
)
from glow.collection import text_lines
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import BuildError, ConfigError
from glow.nn import TwoTowers
from glow.runtime import Encoder, Model
from glow.training import (
    REPORT_FILE,
    Place,
    QueryTexts,
    TrainingDevice,
    query_recipe,
    read_towers,
    run,
    teller,
    with_static_queries,
)
from glow_model_export.explain import write_explain
from glow_model_export.graph import export_graph
from glow_model_export.parity import PARITY_TEXTS, check_parity, parity_texts
from glow_model_export.tokens import remove_tokens
from glow_model_export.word_table import move_weights, quantize_table

__all__ = ["StaticOptions", "start_of_static_queries", "static_command"]

EXPONENT = 0.5
"""Initial exponent of the word weights."""
MOST_HELD_OUT = 4000
BATCH_TOKENS = 1024
"""Of the encoder: larger batches leave a processor's cache."""
EVERY = 20
"""One text of so many is held out, to measure the tower."""


class StaticOptions(JsonOptions):
    """Which model, and the texts to learn from."""

    model: Path = option(..., "The model to derive from.", is_argument=True, metavar="MODEL")
    out: Path = option(..., "Model directory to write.", metavar="DIR")
    texts: tuple[Path, ...] = option(
        ..., "Texts like your queries: queries, titles, sentences, one per line; repeatable.", metavar="FILE"
    )
    epochs: int = option(2, "Passes over the texts.", ge=1)
    seed: int = option(0, "Random seed.")
    device: TrainingDevice = option("auto", "`auto`: a GPU if there is one.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)
    replace: bool = option(False, "Replace an existing model.")


@command(StaticOptions)
def static_command(options: StaticOptions) -> None:
    """Makes a model whose queries cost almost nothing: a row of numbers a token, weighted by BM25; the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.out.exists() and not options.replace:
        raise BuildError(f"{options.out} exists; choose another --out, or give --replace")
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    report = _derive(options, lambda line: console.print(line, markup=False))
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _derive(options: StaticOptions, say: Callable[[str], None]) -> dict[str, Any]:
    model, work = Model.open(options.model), options.out.with_name(f"{options.out.name}.making")
    texts, held = _texts(options.texts, options.seed)
    work.mkdir(parents=True, exist_ok=True)
    whole = read_towers(model)
    say(f"{len(texts):,} texts, {len(held):,} held out; encoding them")
    encoder = model.encoder("query", threads=torch.get_num_threads(), batch_tokens=BATCH_TOKENS)
    made = QueryTexts.encoded(work / "teacher", encoder.encode, model.hash, model.preprocessor, texts, held)
    towers = with_static_queries(whole, start_of_static_queries(model, whole.config.vocabulary), EXPONENT)
    for part in (towers.document, towers.words):
        part.requires_grad_(False)
    recipe = query_recipe(towers, model.preprocessor, made, options.seed, epochs=options.epochs)
    training = run(recipe, Place(work / "run", None, options.device), teller(say))
    figures = _write(options, model, towers.cpu().eval(), training, held)
    shutil.rmtree(work)
    return figures


def _texts(files: Sequence[Path], seed: int) -> tuple[list[str], list[str]]:
    """Distinct training texts in random order, and held-out texts.

    Raises:
        ConfigError: if there are too few.
    """
    every = list(dict.fromkeys(text_lines(files)))
    count = min(len(every) // EVERY, MOST_HELD_OUT)
    if not count:
        raise ConfigError(f"expected {EVERY} different texts at least, found {len(every)}")
    order = np.random.default_rng(seed).permutation(len(every)).tolist()
    return [every[place] for place in order[count:]], [every[place] for place in order[:count]]


def start_of_static_queries(model: Model, vocabulary: int) -> torch.Tensor:
    """The vector of each token alone, by the model's query tower; float32 [vocabulary, D]."""
    encoder = model.encoder("query", batch_tokens=BATCH_TOKENS)
    any_query = model.preprocessor.query("a")
    first, last = any_query.ids[[0, -1]].tolist()
    one = replace(
        any_query,
        field_ids=np.zeros(3, np.int64),
        word_ids=np.array([-1, 0, -1], np.int64),
        weights=np.ones(3, np.float32),
    )
    sequences = [replace(one, ids=np.array([first, token, last], np.int64)) for token in range(vocabulary)]
    return torch.from_numpy(encoder.encode(sequences))


def _write(
    options: StaticOptions, model: Model, towers: TwoTowers, training: dict[str, Any], held: Sequence[str]
) -> dict[str, Any]:
    manifest, preprocessor, pad_id = model.manifest, model.preprocessor, model.preprocessor.pieces.pad_id
    texts = {
        **parity_texts(preprocessor),
        QUERY_TOWER: [preprocessor.query(text) for text in held[:PARITY_TEXTS]],
    }
    mine = {
        QUERY_TOWER,
        TOWER_WEIGHTS[QUERY_TOWER],
        EXPLAIN_TOWERS[QUERY_TOWER],
        CALIBRATION_FILE,
        TOKEN_PROJECTION,
    }
    with (
        write_artifact(options.out, "model", replace=options.replace) as writer,
        tempfile.TemporaryDirectory() as scratch,
    ):
        for name in manifest.files:
            if name not in mine:
                (writer.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model.folder / name, writer.folder / name)
        graph = export_graph(towers.query)
        onnx.save(graph, Path(scratch) / QUERY_TOWER)
        quantize_table(graph)
        move_weights(writer.folder / TOWER_WEIGHTS[QUERY_TOWER], graph)
        onnx.save(graph, writer.folder / QUERY_TOWER)
        paths = (Path(scratch) / QUERY_TOWER, writer.folder / QUERY_TOWER)
        parity = check_parity(towers.query, *paths, texts[QUERY_TOWER], pad_id)
        _without_tokens(writer.folder)
        write_explain(writer.folder, texts, pad_id)
        towers.config.save(writer.folder / "towers.json")
        report = {
            "derived_from": {"model": manifest.name, "hash": model.hash},
            "parity": parity.as_json(),
            "cosine": _cosine(paths[1], model, texts[QUERY_TOWER]),
            "training": training,
        }
        (writer.folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        writer.parents = {"source": report["derived_from"]}
        writer.parameters = dict(manifest.parameters)
        writer.counts = {name: count for name, count in manifest.counts.items() if name != "token_size"}
        writer.hashes = {**manifest.hashes, "model": model_hash(file_records(writer.folder))}
    return {"model": options.out.name, **report}


def _without_tokens(folder: Path) -> None:
    """Takes token vectors out of the document graphs: a row that never sees other words adds nothing by late interaction."""
    for name in (DOCUMENT_TOWER, TERMS_TOWER):
        if (folder / name).is_file():
            graph = onnx.load(folder / name, load_external_data=False)
            remove_tokens(graph)
            onnx.save(graph, folder / name)


def _cosine(path: Path, model: Model, sequences: Sequence[Any]) -> float:
    """Mean cosine between the shipped tower's vectors and those of the model's own query tower."""
    found: NDArray[np.float32] = Encoder(path, model.preprocessor.pieces.pad_id).encode(sequences)
    return float((found * model.encoder("query").encode(sequences)).sum(1).mean())
