"""`glow adapt`: a model fitted to your documents; it needs no queries and no relevance judgments.

Training pairs are made from the documents (`glow.training.synthesis`). The model is trained on them, close to its
former vectors, exported, and compared with the former model by queries that neither was trained on. The same call resumes.
"""

import json
import shutil
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from glow.artifact import default_model
from glow.collection import read_documents
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import BuildError, ExportError, GateError, InputError
from glow.nn import PretrainingKind
from glow.records import Document
from glow.runtime import Model
from glow.text import body_text
from glow.training import (
    EncodeOptions,
    Given,
    Progress,
    SynthesisOptions,
    TrainConfig,
    TrainingDevice,
    load_checkpoint,
    synthesize,
    train,
)
from glow_model_export.adapt_gate import AdaptVerdict, clicked_only, judge_adapted, judging_folder
from glow_model_export.adapt_recipe import HELD_OUT, adapt_config, pretrained_start
from glow_model_export.package import Source, export_model
from glow_model_export.quantize import Quantization

__all__ = ["AdaptOptions", "adapt_command"]

PARITY_TEXTS = 200
"""Documents for the parity check of the exported towers."""
SHOWN_STEPS = 25
QUERY_WORDS = 8
NOT_JUDGED = "there are too few documents to hold some out, so nothing shows whether the model is better"


class AdaptOptions(JsonOptions):
    """Which model to adapt to which documents."""

    source: Path = option(..., "Documents (JSON Lines), as for `glow build`.", flag="--input", metavar="FILE")
    out: Path = option(..., "Model directory to write; work in progress is in OUT.adapting.", metavar="DIR")
    model: Path | None = option(
        None, "Model to start from; default: the one that models/DEFAULT names.", metavar="DIR"
    )
    quantize: Quantization = option("int8", "Precision of the towers.")
    max_steps: int = option(250, "Most steps of 64 pairs; at most three passes over the pairs.", ge=1)
    seed: int = option(4, "Random seed.")
    teacher: Path | None = option(
        None,
        "Model or BERT directory that the adapted model stays close to; default: --model.",
        metavar="DIR",
    )
    pretraining: PretrainingKind = option(
        "cross-thought", "Pre-training of the document tower, with --pretrain-minutes."
    )
    pretrain_minutes: float = option(0.0, "Minutes of pre-training on the documents; 0: none.", ge=0.0)
    judged: Path | None = option(
        None,
        "Data directory of judged queries, which decide if the new model is better; default: queries from held-out documents.",
        metavar="DIR",
    )
    split: str = option("dev", "Split of --judged.")
    force: bool = option(False, "Write the model even if it is significantly worse.")
    device: TrainingDevice = option("auto", "`auto`: a GPU if there is one.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)
    replace: bool = option(False, "Replace an existing model.")


@command(AdaptOptions)
def adapt_command(options: AdaptOptions) -> None:
    """Fits a model to your documents, with pairs made from them; the same call resumes."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.out.exists() and not options.replace:
        raise BuildError(f"{options.out} exists; choose another --out, or give --replace")
    model = Model.open(options.model or default_model())
    config = adapt_config(model, options.max_steps, options.seed)
    texts = _first_documents(options.source, model)
    report = _adapt(options, model, config, texts)
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _adapt(options: AdaptOptions, model: Model, config: TrainConfig, texts: list[Document]) -> dict[str, Any]:
    work = options.out.with_name(f"{options.out.name}.adapting")
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(stage: str) -> None:
        console.print(stage, markup=False)

    work.mkdir(parents=True, exist_ok=True)
    pairs = _pairs(options, model, work, say)
    start, pretraining = model.folder, None
    if options.pretrain_minutes:
        start, pretraining = _pretrained(options, model, work, say)
    given = Given(
        out=work / "checkpoint",
        init=start,
        data=[work / "pairs"],
        teacher=options.teacher or model.folder,
        device=options.device,
    )
    training = train(config, given, say, _teller("", say))
    trained = load_checkpoint(given.out)
    parent = {"model": model.manifest.name, "hash": model.hash}
    source = Source(trained.towers, trained.preprocessor, trained.report, parent)
    exported = _exported(source, options, work / "model" / options.out.name, texts, given.out, say)
    say("comparing")
    made = work / "model" / options.out.name
    verdict = _verdict(options, model, made, work) if options.judged or pairs["held_out"] else None
    say(verdict.says if verdict else NOT_JUDGED)
    report = {
        "model": options.out.name,
        "adapted_from": model.label,
        "pairs": pairs,
        "pretraining": pretraining,
        "training": training,
        "verdict": verdict.record() if verdict else {"publish": False, "says": NOT_JUDGED},
        **exported,
    }
    if verdict and verdict.worse and not options.force:
        raise GateError(
            f"{verdict.says}; it is in {made}, and --force writes it to {options.out}", verdict.record()
        )
    if options.out.exists():
        shutil.rmtree(options.out)
    made.rename(options.out)
    _clear(work)
    return report


def _pairs(options: AdaptOptions, model: Model, work: Path, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"making pairs from {options.source.name}")
    making = SynthesisOptions(seed=options.seed, held_out=0.0 if options.judged else HELD_OUT)
    encode = EncodeOptions(threads=torch.get_num_threads())
    schema = model.preprocessor.schema
    made = synthesize(options.source, work / "pairs", schema, making, model.folder, encode)
    return {name: made[name] for name in ("documents", "pairs", "held_out")}


def _pretrained(
    options: AdaptOptions, model: Model, work: Path, say: Callable[[str], None]
) -> tuple[Path, dict[str, Any]]:
    return pretrained_start(
        model,
        options.source,
        work,
        options.pretraining,
        options.pretrain_minutes,
        options.seed,
        options.device,
        say,
        _teller("pre-training: ", say),
    )


def _teller(what: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if progress.step % SHOWN_STEPS == 0 or progress.step == progress.steps:
            say(f"{what}step {progress.step} of {progress.steps}: loss {progress.loss:.4f}")

    return tell


def _exported(
    source: Source,
    options: AdaptOptions,
    out: Path,
    texts: list[Document],
    checkpoint: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    say("exporting")
    body = source.preprocessor.schema.body
    queries = [" ".join(body_text(document, body).split()[:QUERY_WORDS]) for document in texts]
    try:
        return export_model(source, out, options.quantize, queries, texts, replace=True)
    except ExportError as error:
        if options.quantize == "none":
            raise ExportError(f"{error}; nothing is lost: the trained towers are in {checkpoint}") from error
        # Training may spread weights too far for 8 bits per column. Float weights keep the result of the training.
        say(f"{error}; writing float weights instead, which take more space and time")
        return export_model(source, out, "none", queries, texts, replace=True)


def _verdict(options: AdaptOptions, model: Model, adapted: Path, work: Path) -> AdaptVerdict:
    """Judges by the given judged queries over all documents, or by held-out queries over the synthesized data."""
    threads = torch.get_num_threads()
    folder, split = work / "pairs", "dev"
    if options.judged is not None:
        folder, split, source = options.judged, options.split, f"judged queries of {options.judged.name}"
    else:
        source = "clicked queries" if clicked_only(folder) else "made queries"
        source += " of held-out documents"
    judging = judging_folder(folder, split, work / "judged", options.seed)
    return judge_adapted(model, Model.open(adapted), judging, split, source, threads)


def _clear(work: Path) -> None:
    shutil.rmtree(work)


def _first_documents(source: Path, model: Model) -> list[Document]:
    """The first documents with text, for the parity check.

    Raises:
        InputError: if the file cannot be read, or no document has text.
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
