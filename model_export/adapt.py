"""`glow adapt`: a model fitted to documents of one's own; no query and no judgement is needed.

Training pairs are made from the documents (`glow.training.synthesis`), the model that one has is trained further on them, held near its teacher,
and exported. The same call goes on where a stopped one was.
"""

import json
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from glow.artifact import default_model
from glow.collection import read_documents
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import BuildError, ExportError, InputError
from glow.nn import TowerConfig, minilm_folder
from glow.records import Document
from glow.runtime import Model
from glow.text import body_text
from glow.training import (
    Progress,
    TrainConfig,
    TrainingDevice,
    TrainInputs,
    load_checkpoint,
    train,
)
from glow_model_export.package import Source, export_model
from glow_model_export.quantize import Quantization

__all__ = ["AdaptOptions", "adapt_command"]

PARITY_TEXTS = 200
"""Documents that the exported towers are compared by."""
SHOWN_STEPS = 25
QUERY_WORDS = 8


class AdaptOptions(JsonOptions):
    """Which model to fit to which documents."""

    source: Path = option(
        ..., "JSON lines of the documents, as for `glow build`.", flag="--input", metavar="FILE"
    )
    out: Path = option(..., "Model folder to make; work in progress stands in OUT.adapting.", metavar="DIR")
    model: Path | None = option(
        None, "Model to start from; default: the one models/DEFAULT names.", metavar="DIR"
    )
    quantize: Quantization = option("int8", "Precision of the towers.")
    max_steps: int = option(
        250, "Steps of 64 pairs at most; three passes over the pairs if those are fewer.", ge=1
    )
    seed: int = option(4, "Of every random choice.")
    teacher: Path | None = option(
        None, "BERT-layout folder that the model stays near; default: all-MiniLM-L6-v2.", metavar="DIR"
    )
    device: TrainingDevice = option("auto", "`auto` takes a GPU where there is one.")
    threads: int = option(0, "CPU threads; 0 takes all cores.", ge=0)
    replace: bool = option(False, "Replace an existing model.")


@command(AdaptOptions)
def adapt_command(options: AdaptOptions) -> None:
    """Fits a model to documents of one's own, by pairs made from them; the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.out.exists() and not options.replace:
        raise BuildError(f"{options.out} exists; choose another --out, or give --replace")
    model = Model.open(options.model or default_model())
    texts = _first_documents(options.source, model)
    report = _adapt(options, model, texts)
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _adapt(options: AdaptOptions, model: Model, texts: list[Document]) -> dict[str, Any]:
    work = options.out.with_name(f"{options.out.name}.adapting")
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    inputs = TrainInputs(
        (),
        "train",
        work / "checkpoint",
        model.folder,
        options.teacher or minilm_folder(),
        synthesise=(options.source,),
        synthesis_model=model.folder,
        device=options.device,
    )

    def tell(progress: Progress) -> None:
        if progress.step % SHOWN_STEPS == 0 or progress.step == progress.steps:
            console.print(f"step {progress.step} of {progress.steps}: loss {progress.loss:.4f}", markup=False)

    work.mkdir(parents=True, exist_ok=True)
    training = train(_config(model, options), inputs, lambda stage: console.print(stage, markup=False), tell)
    trained = load_checkpoint(inputs.out)
    parent = {"model": model.manifest.name, "hash": model.hash}
    source = Source(trained.towers, trained.preprocessor, trained.report, parent)
    console.print("exporting", markup=False)
    queries = [
        " ".join(body_text(document, model.preprocessor.schema.body).split()[:QUERY_WORDS])
        for document in texts
    ]
    try:
        exported = _export(source, options, options.quantize, queries, texts)
    except ExportError as error:
        if options.quantize == "none":
            raise ExportError(f"{error}; nothing is lost: the trained towers are in {inputs.out}") from error
        # Training moves weights where 8 bits a column no longer hold them closely enough. Minutes of training are worth more.
        console.print(f"{error}; writing float weights instead, which take more room and time", markup=False)
        exported = _export(source, options, "none", queries, texts)
    _clear(work)
    return {"model": options.out.name, "adapted_from": model.label, "training": training, **exported}


def _export(
    source: Source, options: AdaptOptions, how: Quantization, queries: list[str], texts: list[Document]
) -> dict[str, Any]:
    return export_model(source, options.out, how, queries, texts, replace=options.replace)


def _clear(work: Path) -> None:
    shutil.rmtree(work)


def _config(model: Model, options: AdaptOptions) -> TrainConfig:
    """The recipe of configs/adapt.toml, for towers of the model's own shape."""
    schema, shape = model.preprocessor.schema, TowerConfig.load(model.folder / "towers.json")
    towers = shape.model_dump(include={"weight_side", "weight_form", "gain", "pooling_gain", "pooling"})
    return TrainConfig.model_validate(
        {
            "name": "adapt",
            "seed": options.seed,
            "fields": schema.name,
            "document_tokens": schema.document_tokens,
            "one_field_id": schema.one_field_id,
            "weighting": model.preprocessor.weighting.model_dump(),
            "towers": {
                **towers,
                "init_layers": tuple(range(shape.layers)),
                "document_layers": tuple(range(shape.document.layers)),
                "train_words": False,
            },
            "objective": {"kind": "softmax", "temperature": 0.05, "distill_weight": 5.0},
            "optimizer": {
                "batch_size": 64,
                "epochs": 3,
                "max_steps": options.max_steps,
                "learning_rate": 1e-4,
                "warmup": 0.1,
                "precision": "bf16",
            },
        }
    )


def _first_documents(source: Path, model: Model) -> list[Document]:
    """Some of the documents that have text, for the parity check.

    Raises:
        InputError: if the file cannot be read, or none has any.
    """
    schema = model.preprocessor.schema
    with_text = (
        document
        for document in read_documents(source, schema.names)
        if body_text(document, schema.body).strip()
    )
    found = list(islice(with_text, PARITY_TEXTS))
    if not found:
        raise InputError(f"{source} holds no document with text in {schema.body}")
    return found
